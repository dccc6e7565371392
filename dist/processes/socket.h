// TCP connections between the processes of one run, and messages on them. No call blocks longer
// than its deadline, except that looking up a host name takes as long as the system needs.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace zl {

// [ns] A clock that does not advance while this process is stopped (Ctrl-Z, a debugger), because no
// other rank is late then. A thread of the process must ask every few milliseconds, as
// ControlClient's does.
int64_t running_nanoseconds();

using Deadline = std::chrono::steady_clock::time_point;
// `timeout` from now; 0: never.
Deadline deadline_in(std::chrono::milliseconds timeout);

// A file descriptor that is closed with its owner. Programs that this one starts do not inherit it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~Socket() {
    if (open()) ::close(fd_);
  }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Listens on `port`, for programs of this machine or for all that can reach it. Not open if another
// program has the port. Throws CommunicationError if the system refuses for another reason.
enum class Reach { this_machine, everywhere };
Socket listen_on(int port, Reach reach = Reach::everywhere);
// A connection that waits at a listening socket; not open if there is none.
Socket accept_from(const Socket& listener);
// One attempt. If it fails until the deadline, the socket is not open and `why` says why.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& why);
// Two sockets that are connected to each other, in this process.
std::pair<Socket, Socket> socket_pair();

enum class ControlMessage : uint32_t;  // dist/processes/control_messages.h
struct Message {
  ControlMessage kind;
  std::string body;
};

// What a connection may turn out to be, from which no message comes any more: as the end of a
// sentence about what listens at a port.
inline constexpr char kEnded[] = "is a program that is not rank 0 of this run";
inline constexpr char kForeign[] = "is another program than zerolab";
inline constexpr char kOtherVersion[] =
    "is a zerolab of another version; rebuild it on all machines";

// A connection between two zerolab processes, each of which recognizes the other's program and
// version by its messages. send() and flush() may be called by several threads at once, receive()
// by one.
class Connection {
 public:
  explicit Connection(Socket socket);

  // Never blocks: sends what the system takes now, and the rest in flush() and receive().
  void send(ControlMessage kind, std::string_view body = "");
  // Adds bytes to what is to be sent. Returns whether the system has taken all.
  bool flush(std::string_view more = "");
  // Returns the next message, and waits for it until the deadline, at most 2 s. None: it has not
  // come completely, or there is a problem.
  std::optional<Message> receive(Deadline deadline);
  // kEnded, if the other side has closed the connection, kForeign or kOtherVersion; null: none.
  const char* problem() const { return problem_; }

  const Socket& socket() const { return socket_; }
  size_t unread() const { return bytes_.size(); }  // [B] of a message that has not come completely
  // [ns] since bytes last came, even of an incomplete message; for the receiving thread.
  int64_t silence() const { return running_nanoseconds() - heard_; }

 private:
  Socket socket_;
  std::mutex mutex_;
  std::string unsent_;  // under mutex_
  size_t sent_ = 0;     // [B] of unsent_, under mutex_

  std::string bytes_;  // received, and not taken yet
  int64_t heard_ = running_nanoseconds();
  const char* problem_ = nullptr;
};

}  // namespace zl
