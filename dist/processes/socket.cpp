#include "dist/processes/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "dist/processes/wire.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Before each message: by it the other side recognizes the program and its version.
constexpr std::array<char, 8> kProgram{"zerolab"};
constexpr uint32_t kVersion = 8;  // changes with the messages
struct Header {
  std::array<char, 8> program = kProgram;
  uint32_t version = kVersion;
  ControlMessage kind{};
  uint64_t length = 0;  // [B] of the message
};
constexpr uint64_t kLongest = uint64_t(1) << 32;  // [B]

constexpr int kKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Whether `events` came before the deadline, or within 2 s.
bool wait_for(int fd, short events, Deadline deadline) {
  const auto left = std::clamp<Clock::duration>(deadline - Clock::now(), 0s, 2s);
  pollfd waiting{fd, events, 0};
  return ::poll(&waiting, 1, int(std::chrono::ceil<std::chrono::milliseconds>(left).count())) > 0;
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// None if it has no address: then `why` says so.
Addresses look_up(const std::string& host, int port, std::string& why) {
  addrinfo wanted{}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list))
    why = str("'", host, "' has no address: ", ::gai_strerror(error));
  return Addresses(list, ::freeaddrinfo);
}

}  // namespace

int64_t running_nanoseconds() {
  static std::mutex mutex;
  static int64_t last = 0, stopped = 0;
  const std::lock_guard lock(mutex);
  const int64_t now = steady_nanoseconds(), since = now - std::exchange(last, now);
  if (since > 1'000'000'000) stopped += since;
  return now - stopped;
}

Deadline deadline_in(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? Clock::now() + timeout : Deadline::max();
}

// IPv6 sockets take IPv4 connections too; some machines have only IPv4.
Socket listen_on(int port, Reach reach) {
  const bool everywhere = reach == Reach::everywhere;
  std::string why;
  for (const char* host : {everywhere ? "::" : "127.0.0.1", everywhere ? "0.0.0.0" : "127.0.0.1"}) {
    const Addresses at = look_up(host, port, why);
    if (!at) continue;
    Socket socket(::socket(at->ai_family, kKind, 0));
    if (!socket.open()) {
      why = str("the system gives no socket: ", std::strerror(errno));
      continue;
    }
    const int on = 1, off = 0;  // soon after another run the port counts as used
    (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    (void)::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(socket.fd(), 128) == 0)
      return socket;
    if (errno == EADDRINUSE) return {};
    why = std::strerror(errno);
  }
  throw CommunicationError(
      str("rank 0 cannot listen on port ", port, ": ", why,
          "; set ZEROLAB_PORT to a port that this user may use, such as 29600"));
}

Socket accept_from(const Socket& listener) {
  return Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& why) {
  const Addresses all = look_up(address, port, why);
  int addresses = 0;
  for (const addrinfo* to = all.get(); to; to = to->ai_next) ++addresses;
  for (const addrinfo* to = all.get(); to; to = to->ai_next, --addresses) {
    // An address that drops packets must leave time for the others.
    const Deadline part = Clock::now() + (deadline - Clock::now()) / addresses;
    Socket socket(::socket(to->ai_family, kKind, 0));
    const bool opened = socket.open();
    int error = opened && ::connect(socket.fd(), to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    socklen_t size = sizeof error;
    if (error == EINPROGRESS && !wait_for(socket.fd(), POLLOUT, part))
      error = ETIMEDOUT;
    else if (error == EINPROGRESS)
      (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return socket;
    why = std::strerror(error);
  }
  return {};
}

std::pair<Socket, Socket> socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, kKind, 0, fds) != 0)
    throw CommunicationError(str("the system gives no socket: ", std::strerror(errno)));
  return {Socket(fds[0]), Socket(fds[1])};
}

Connection::Connection(Socket socket) : socket_(std::move(socket)) {
  const int on = 1;  // TCP would collect small messages
  (void)::setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Connection::send(ControlMessage kind, std::string_view body) {
  (void)flush(to_bytes(Header{.kind = kind, .length = body.size()}).append(body));
}

// If the connection is gone, receive() finds that.
bool Connection::flush(std::string_view more) {
  const std::lock_guard lock(mutex_);
  unsent_.append(more);
  while (sent_ < unsent_.size()) {
    const ssize_t sent =
        ::send(socket_.fd(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent > 0)
      sent_ += size_t(sent);
    else if (!try_again())
      sent_ = unsent_.size();
    else if (errno != EINTR)
      return false;
  }
  unsent_.clear();
  sent_ = 0;
  return true;
}

std::optional<Message> Connection::receive(Deadline deadline) {
  for (bool any = false; !problem_;) {
    Header header;  // of as many bytes as have come, which say already that they are not ours
    std::memcpy(&header, bytes_.data(), std::min(bytes_.size(), sizeof header));
    if (header.program != kProgram || header.length > kLongest)
      problem_ = kForeign;
    else if (header.version != kVersion)
      problem_ = kOtherVersion;
    else if (bytes_.size() >= sizeof header + header.length) {
      Message message{header.kind, bytes_.substr(sizeof header, header.length)};
      bytes_.erase(0, sizeof header + header.length);
      return message;
    }
    if (problem_ || (any && Clock::now() >= deadline)) break;
    char piece[65536];
    const ssize_t got = ::recv(socket_.fd(), piece, sizeof piece, 0);
    if (got > 0) {
      bytes_.append(piece, size_t(got));
      heard_ = running_nanoseconds();
      any = true;
    } else if (got == 0 || !try_again()) {
      problem_ = kEnded;
    } else if (!wait_for(socket_.fd(), flush() ? POLLIN : POLLIN | POLLOUT, deadline)) {
      break;
    }
  }
  return {};
}

}  // namespace zl
