// TCP between the processes of one run: connections that never wait without a deadline, and messages that come whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace zl {

using Deadline = std::chrono::steady_clock::time_point;
// `timeout` from now; 0: never.
Deadline deadline_in(std::chrono::milliseconds timeout);

// A file descriptor that is closed with it, and in no program that this one starts.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();
  // The other side reads to the end of what was sent, and then that there is no more.
  void finish_sending();

 private:
  int fd_ = -1;
};

// Listens on `port`, for programs of this machine or for all that reach it; none if something else does. Throws CommunicationError
// if the system refuses for another reason.
enum class Reach { this_machine, everywhere };
Socket listen_on(int port, Reach reach = Reach::everywhere);
// Whoever waits at a socket that listens; none if nobody does.
Socket accept_from(const Socket& listener);
// One attempt; none if nobody listens there, or nothing answers in time, and then `why` says so.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& why);

// Sends all of it. Returns false if the connection is gone or the deadline passes.
bool send_all(const Socket& socket, std::string_view bytes, Deadline deadline);

struct Message {
  uint8_t kind = 0;
  std::string body;
};
bool send_message(const Socket& socket, uint8_t kind, std::string_view body, Deadline deadline);

// What has come of the messages of one connection. Each side begins with a word by which the other knows whom it talks to.
class MessageReader {
 public:
  enum class State { waiting, message, ended, foreign };  // ended: no more will come; foreign: not a rank of zerolab

  // Reads what is there, and waits for it until the deadline.
  State read(const Socket& socket, Message& message, Deadline deadline);

 private:
  bool take(Message& message);

  std::string bytes_;
  bool greeted_ = false, foreign_ = false, known_ = false;  // known: a whole message has come
};
bool send_greeting(const Socket& socket, Deadline deadline);

// Two ranks that know each other.
struct Connection {
  Socket socket;
  MessageReader reader;
};

}  // namespace zl
