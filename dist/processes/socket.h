// TCP between the processes of one run: connections whose waits end, and messages that come whole.
// A socket that is not open stands for none. Only looking up a name takes as long as the system
// likes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace zl {

using Deadline = std::chrono::steady_clock::time_point;
// `timeout` from now; 0: never.
Deadline deadline_in(std::chrono::milliseconds timeout);

// A file descriptor that is closed with it, and is not inherited by programs that this one starts.
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
  // Half-closes: the other side reads what was sent, and then that no more will come.
  void finish_sending();
  // Closes both ways: whoever reads here, too, sees the end.
  void hang_up();

 private:
  int fd_ = -1;
};

// Listens on `port`, for programs of this machine or for all that reach it; none if something else
// does. Throws CommunicationError if the system refuses for another reason.
enum class Reach { this_machine, everywhere };
Socket listen_on(int port, Reach reach = Reach::everywhere);
// Whoever waits at a socket that listens; none if nobody does.
Socket accept_from(const Socket& listener);
// One attempt; none if nobody listens there, or nothing answers in time, and then `why` says so.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& why);

// Sends all of it. Returns false if the connection is gone, or if nothing more could be sent for as
// long as `patience`; then a part may be under way, and nothing else can be sent.
bool send_all(const Socket& socket, std::string_view bytes, std::chrono::milliseconds patience);

struct Message {
  uint8_t kind = 0;
  std::string body;
};
bool send_message(const Socket& socket, uint8_t kind, std::string_view body,
                  std::chrono::milliseconds patience);

// Collects the bytes of one connection into messages. Each side begins with a word by which the
// other knows whom it talks to.
class MessageReader {
 public:
  enum class State {
    waiting,  // until the deadline nothing whole has come
    message,
    ended,         // no more will come
    foreign,       // what came is not of zerolab
    other_version  // it is of a zerolab whose messages are others
  };

  // Reads what is there, and waits for it until the deadline.
  State read(const Socket& socket, Message& message, Deadline deadline);
  int64_t received() const { return received_; }  // [B] so far, also of messages that are not whole

 private:
  bool take(Message& message);

  std::string bytes_;
  int64_t received_ = 0;
  bool greeted_ = false, foreign_ = false, other_version_ = false,
       known_ = false;  // known: a whole message has come
};
bool send_greeting(const Socket& socket, std::chrono::milliseconds patience);

// Two ranks that know each other.
struct Connection {
  Socket socket;
  MessageReader reader;
};

}  // namespace zl
