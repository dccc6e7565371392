#include "tests/nccl/fake/fake_wires.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "tensor/error.h"

namespace zl::test {
namespace {

static_assert(sizeof(WireHeader) == 40, "headers are compared as bytes");

constexpr int kKind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct Address {
  sockaddr_un is{};
  socklen_t length = 0;
  // A name that begins with 0 is no file: it is free again when its last socket is closed. Such a
  // name is known in one network namespace only; a file in ZEROLAB_FAKE_FOLDER is known in all.
  Address(const std::string& name, int rank) {
    const char* const folder = std::getenv("ZEROLAB_FAKE_FOLDER");
    const std::string begin = folder ? str(folder, "/") : std::string(1, '\0');
    const std::string path = str(begin, "zerolab-fake-", name, "-", rank);
    require(path.size() < sizeof is.sun_path, "the name '", path, "' is too long");
    is.sun_family = AF_UNIX;
    std::memcpy(is.sun_path, path.data(), path.size());
    length = socklen_t(offsetof(sockaddr_un, sun_path) + path.size());
  }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&is); }
};

int new_socket() {
  const int socket_fd = socket(AF_UNIX, kKind, 0);
  require(socket_fd >= 0, "no socket: ", std::strerror(errno));
  const int room = 4 << 20;  // [B]; the machine gives what it allows
  (void)setsockopt(socket_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return socket_fd;
}

void close_if_open(int socket_fd) {
  if (socket_fd >= 0) close(socket_fd);
}

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool same(const WireHeader& a, const WireHeader& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

MemoryWire::MemoryWire(Hub& hub, int rank, int size)
    : hub_(hub), rank_(rank), sends_(size_t(size)) {
  hub_.ranks.resize(size_t(size));
  if (hub_.ranks[size_t(rank)]) return;
  hub_.ranks[size_t(rank)] = this;
  ++hub_.came;
}

MemoryWire::~MemoryWire() {
  if (!taken()) hub_.ranks[size_t(rank_)] = nullptr;
}

bool MemoryWire::move() {
  return std::erase_if(receives_, [this](const auto& receive) {
           const auto& [from, expected] = receive;
           MemoryWire* const sender = hub_.ranks[size_t(from)];
           if (!sender) return false;
           auto& sent = sender->sends_[size_t(rank_)];
           const auto found = std::ranges::find_if(sent, [&](const WireMessage& message) {
             return same(message.header, expected.header);
           });
           if (found == sent.end()) return false;
           if (found->header.bytes > 0)
             std::memcpy(expected.data, found->data, found->header.bytes);
           --*found->open, --*expected.open;
           sent.erase(found);
           return true;
         }) > 0;
}

SocketWire::SocketWire(const std::string& name, int rank, int size)
    : name_(name), rank_(rank), size_(size), peers_(size_t(size)) {
  const Address own(name_, rank_);
  int pair[2];
  require(socketpair(AF_UNIX, kKind, 0, pair) == 0, "no sockets: ", std::strerror(errno));
  Peer& self = peers_[size_t(rank_)];
  self.in = pair[0], self.out = pair[1];
  self.known = true;
  listener_ = new_socket();
  taken_ = bind(listener_, own.raw(), own.length) != 0 || listen(listener_, size_) != 0;
}

SocketWire::~SocketWire() {
  close_if_open(listener_);
  for (const int stranger : strangers_) close_if_open(stranger);
  for (const Peer& peer : peers_) {
    close_if_open(peer.in);
    if (peer.out != peer.in) close_if_open(peer.out);
  }
}

bool SocketWire::joined() const { return std::ranges::all_of(peers_, &Peer::known); }

bool SocketWire::lost() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.gone && !peer.left; });
}

int SocketWire::connect_to(int rank) const {
  const Address address(name_, rank);
  const int socket_fd = new_socket();
  if (connect(socket_fd, address.raw(), address.length) == 0) {
    greet(socket_fd);
    return socket_fd;
  }
  close(socket_fd);  // it has not come yet
  return -1;
}

// The first bytes in an empty socket, so there is room for them, and they come in one piece.
void SocketWire::greet(int socket_fd) const {
  const Hello hello{uint32_t(size_), uint32_t(rank_)};
  (void)::send(socket_fd, &hello, sizeof hello, MSG_NOSIGNAL);
}

// Each rank knocks at the lower ones and opens to the higher ones. Who means another number of
// ranks stays a stranger.
void SocketWire::meet() {
  for (int r = 0; r < rank_; ++r) {
    Peer& peer = peers_[size_t(r)];
    if (peer.in < 0) peer.in = peer.out = connect_to(r);
  }
  for (int socket_fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
       socket_fd >= 0;
       socket_fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))
    strangers_.push_back(socket_fd);
  std::erase_if(strangers_, [this](int socket_fd) {
    Hello hello{};
    if (recv(socket_fd, &hello, sizeof hello, 0) != ssize_t(sizeof hello)) return false;
    if (int(hello.size) != size_ || hello.rank >= hello.size || peers_[hello.rank].in >= 0)
      return false;
    greet(socket_fd);
    Peer& peer = peers_[hello.rank];
    peer.in = peer.out = socket_fd;
    return peer.known = true;
  });
  for (int r = 0; r < rank_; ++r) {
    Peer& peer = peers_[size_t(r)];
    Hello hello{};
    if (peer.known || peer.gone || peer.in < 0) continue;
    const ssize_t got = recv(peer.in, &hello, sizeof hello, 0);
    peer.known = got == ssize_t(sizeof hello) && int(hello.size) == size_ && int(hello.rank) == r;
    peer.gone = got == 0 || (got < 0 && !try_again());
  }
  if (!joined()) return;
  close(listener_);
  listener_ = -1;
}

bool SocketWire::move() {
  if (listener_ >= 0 && !taken_) meet();
  bool any = false;
  for (bool moved = true; moved; any |= moved) {
    moved = false;
    for (Peer& peer : peers_) {
      if (!peer.known) continue;
      moved |= push(peer);
      moved |= pull(peer);
    }
  }
  return any;
}

// Returns whether anything went out.
bool SocketWire::push(Peer& peer) {
  bool moved = false;
  while (!peer.sends.empty()) {
    WireMessage& message = peer.sends.front();
    const size_t head = sizeof message.header, whole = head + message.header.bytes;
    const bool in_head = peer.sent < head;
    const char* const from = in_head ? reinterpret_cast<const char*>(&message.header) + peer.sent
                                     : message.data + (peer.sent - head);
    const ssize_t sent = ::send(peer.out, from, (in_head ? head : whole) - peer.sent, MSG_NOSIGNAL);
    if (sent < 0) return moved;  // no room, or no receiver: reading will show which
    peer.sent += size_t(sent);
    moved = true;
    if (peer.sent < whole) continue;
    --*message.open;
    peer.sent = 0;
    peer.sends.pop_front();
  }
  return moved;
}

// Returns whether anything came in. A rank that is gone is seen behind all that it has sent, or
// behind what is not expected.
bool SocketWire::pull(Peer& peer) {
  for (bool moved = false;; moved = true) {
    const size_t head = sizeof peer.header;
    if (peer.got >= head && !peer.expected && !expect(peer)) {
      pollfd closed{peer.in, POLLRDHUP, 0};
      peer.gone = poll(&closed, 1, 0) == 1;
      return moved;
    }
    const size_t whole = head + (peer.expected ? peer.receives.front().header.bytes : 0);
    if (peer.expected && peer.got == whole) {
      const WireMessage& message = peer.receives.front();
      peer.left |= message.header.kind == Collective::barrier;
      --*message.open;
      peer.receives.pop_front();
      peer.got = 0;
      peer.expected = false;
      continue;
    }
    const bool in_head = peer.got < head;
    char* const to = in_head ? reinterpret_cast<char*>(&peer.header) + peer.got
                             : peer.receives.front().data + (peer.got - head);
    const ssize_t got = recv(peer.in, to, whole - peer.got, 0);
    if (got == 0 || (got < 0 && !try_again())) peer.gone = true;
    if (got <= 0) return moved;
    peer.got += size_t(got);
  }
}

// Whether a receive expects the message that has come; it is then the first of the receives.
bool SocketWire::expect(Peer& peer) {
  const auto found = std::ranges::find_if(
      peer.receives, [&](const WireMessage& message) { return same(message.header, peer.header); });
  if (found == peer.receives.end()) return false;
  std::rotate(peer.receives.begin(), found, found + 1);
  return peer.expected = true;
}

}  // namespace zl::test
