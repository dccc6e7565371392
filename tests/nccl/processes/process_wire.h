// What the fake's ranks send each other through: sockets of the machine's own, under a name that
// dies with the process.
//
// Nothing here waits. What was posted moves in calls of move(), in both directions at once,
// as far as there is room and there are bytes; so ranks that send each other more than a socket
// holds do not lock each other out. A message is taken by the first receive that expects exactly
// its header. What is not expected stays where it is, and so does all that the same rank sent
// behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/nccl/api.h"

namespace zl::test {

// What both sides must mean alike. Without padding: it is compared and sent as bytes.
struct WireHeader {
  Collective kind = Collective::barrier;
  NcclType type = NcclType::int32;
  int32_t root = -1;
  uint32_t part = 0;    // of a collective that sends twice: 0, 1
  uint64_t number = 0;  // among the collectives, or among what this pair sends in this direction
  uint64_t count = 0;   // [n] as the call counts
  uint64_t bytes = 0;   // that follow
};

struct WireMessage {
  WireHeader header;
  char* data;
  int* open;  // counted down when the message has moved
};

class ProcessWire {
 public:
  ProcessWire(const std::string& name, int rank, int size);
  ~ProcessWire();  // closes everything at once
  ProcessWire(const ProcessWire&) = delete;

  bool taken() const { return taken_; }  // another process is this rank
  bool joined() const;                   // all ranks have come
  bool lost()
      const;  // a rank is gone that has not sent its barrier, which is the last that ranks send

  void send(int to, const WireMessage& message) { peers_[size_t(to)].sends.push_back(message); }
  void receive(int from, const WireMessage& message) {
    peers_[size_t(from)].receives.push_back(message);
  }
  void move();  // as far as it goes now

 private:
  struct Hello {
    uint32_t size, rank;
  };
  struct Peer {
    int in = -1, out = -1;  // the same socket, but for what a rank sends itself
    bool known = false;     // its greeting has come
    bool gone = false, left = false;
    std::deque<WireMessage> sends, receives;
    size_t sent = 0, got = 0;  // [B] of the first message: its header and its data
    WireHeader header;         // of the message that is coming, as far as it has come
    bool expected = false;     // the first of `receives` is the one
  };

  int connect_to(int rank) const;
  void meet();
  void greet(int socket) const;
  bool push(Peer& peer);
  bool pull(Peer& peer);
  bool expect(Peer& peer);

  const std::string name_;
  const int rank_, size_;
  int listener_ = -1;
  bool taken_ = false;
  std::vector<int> strangers_;  // who came and has not said yet which rank it is
  std::vector<Peer> peers_;     // by rank
};

}  // namespace zl::test
