#include "dist/processes/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "dist/communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr std::string_view kGreeting = "zerolab rank 1\n";  // the number changes with the messages
constexpr std::string_view kName = "zerolab rank ";
constexpr uint64_t kLongest = uint64_t(1) << 32;       // [B] of a message
constexpr uint64_t kLongestFirst = uint64_t(1) << 20;  // of the first, by one who may be a stranger
constexpr size_t kHeader = 1 + sizeof(uint64_t);       // kind and length

// [ms] for poll().
int left_until(Deadline deadline) {
  if (deadline == Deadline::max()) return 1000;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  return int(std::clamp<int64_t>(left, 0, 1000));
}

bool is_over(Deadline deadline) {
  return deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline;
}

// Whether `events` came before the deadline.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd waiting{fd, events, 0};
    const int ready = ::poll(&waiting, 1, left_until(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (is_over(deadline)) return false;
  }
}

void do_not_delay(int fd) {  // TCP would collect small messages, and somebody waits for each
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Where nobody listens, the system may connect a socket to itself: when it gives it that very port.
bool is_own(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here, other = sizeof there;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &other) == 0 &&
         size == other && std::memcmp(&here, &there, size) == 0;
}

bool connects(const Socket& socket, const addrinfo& to, Deadline deadline) {
  if (::connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  if (!wait_for(socket.fd(), POLLOUT, deadline)) return errno = ETIMEDOUT, false;
  int error = 0;
  socklen_t size = sizeof error;
  (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

}  // namespace

Deadline deadline_in(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::chrono::steady_clock::now() + timeout : Deadline::max();
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Socket::finish_sending() { (void)::shutdown(fd_, SHUT_WR); }
void Socket::hang_up() { (void)::shutdown(fd_, SHUT_RDWR); }

Socket listen_on(int port, Reach reach) {
  Socket socket(reach == Reach::everywhere
                    ? ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
                    : -1);
  const bool v6 = socket.open();
  if (!v6) socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open())
    throw CommunicationError(str("this machine gives no socket: ", std::strerror(errno)));
  const int on = 1, off = 0;
  (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on,
                     sizeof on);  // also soon after another run
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6, any6.sin6_port = htons(uint16_t(port)), any6.sin6_addr = in6addr_any;
  sockaddr_in any4{};
  any4.sin_family = AF_INET, any4.sin_port = htons(uint16_t(port));
  any4.sin_addr.s_addr = htonl(reach == Reach::everywhere ? INADDR_ANY : INADDR_LOOPBACK);
  if (v6) (void)::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // IPv4 too
  const auto* address =
      v6 ? reinterpret_cast<const sockaddr*>(&any6) : reinterpret_cast<const sockaddr*>(&any4);
  if (::bind(socket.fd(), address, v6 ? sizeof any6 : sizeof any4) == 0 &&
      ::listen(socket.fd(), 128) == 0)
    return socket;
  if (errno == EADDRINUSE) return {};
  throw CommunicationError(
      str("rank 0 cannot listen on port ", port, ": ", std::strerror(errno),
          "; set ZEROLAB_PORT to a port that this user may use, such as 29600"));
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) do_not_delay(socket.fd());
  return socket;
}

Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& why) {
  addrinfo wanted{}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error =
          ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &list)) {
    why = str("'", address, "' has no address: ", ::gai_strerror(error));
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(list, ::freeaddrinfo);
  int addresses = 0;
  for (const addrinfo* to = list; to; to = to->ai_next) ++addresses;
  for (const addrinfo* to = list; to;
       to = to->ai_next, --addresses) {  // one that swallows packets must not take all the time
    const Deadline share = std::chrono::steady_clock::now() +
                           (deadline - std::chrono::steady_clock::now()) / addresses;
    Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.open() && connects(socket, *to, share)) {
      if (is_own(socket)) {
        why = std::strerror(ECONNREFUSED);
        continue;
      }
      do_not_delay(socket.fd());
      return socket;
    }
    why = std::strerror(errno);
  }
  return {};
}

bool send_all(const Socket& socket, std::string_view bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(size_t(sent));
    else if (errno != EAGAIN && errno != EINTR)
      return false;
    else if (errno == EAGAIN &&
             !wait_for(socket.fd(), POLLOUT, std::chrono::steady_clock::now() + patience))
      return false;
  }
  return true;
}

bool send_greeting(const Socket& socket, std::chrono::milliseconds patience) {
  return send_all(socket, kGreeting, patience);
}

bool send_message(const Socket& socket, uint8_t kind, std::string_view body,
                  std::chrono::milliseconds patience) {
  std::string bytes(1, char(kind));
  const uint64_t length = body.size();
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.append(body);
  return send_all(socket, bytes, patience);
}

bool MessageReader::take(Message& message) {
  if (!greeted_) {
    if (bytes_.compare(0, kGreeting.size(), kGreeting, 0,
                       std::min(bytes_.size(), kGreeting.size())) != 0)
      foreign_ = true;
    other_version_ = foreign_ && bytes_.starts_with(kName);
    if (foreign_ || bytes_.size() < kGreeting.size()) return false;
    bytes_.erase(0, kGreeting.size());
    greeted_ = true;
  }
  if (bytes_.size() < kHeader) return false;
  uint64_t length = 0;
  std::memcpy(&length, bytes_.data() + 1, sizeof length);
  if (length > (known_ ? kLongest : kLongestFirst)) foreign_ = true;
  if (foreign_ || bytes_.size() - kHeader < length) return false;
  message.kind = uint8_t(bytes_[0]);
  message.body = bytes_.substr(kHeader, length);
  bytes_.erase(0, kHeader + length);
  return known_ = true;
}

MessageReader::State MessageReader::read(const Socket& socket, Message& message,
                                         Deadline deadline) {
  const int64_t before = received_;
  for (;;) {
    if (take(message)) return State::message;
    if (foreign_) return other_version_ ? State::other_version : State::foreign;
    if (received_ > before && is_over(deadline))
      return State::waiting;  // more may be there, but not the time
    char piece[65536];
    const ssize_t got = ::recv(socket.fd(), piece, sizeof piece, 0);
    if (got > 0)
      bytes_.append(piece, size_t(got)), received_ += got;
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return State::ended;
    else if (errno == EAGAIN && !wait_for(socket.fd(), POLLIN, deadline))
      return State::waiting;
  }
}

}  // namespace zl
