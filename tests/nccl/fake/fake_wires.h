// What the fake's ranks send each other through: the memory of the process that they are threads
// of, or, between processes, sockets of the machine's own, under a name that dies with the process.
//
// Nothing here waits. What was posted moves in calls of move(), in both directions at once, as far
// as there is room and there are bytes; so ranks that send each other more than a socket holds do
// not lock each other out. A message is taken by the first receive that expects exactly its header.
// What is not expected stays where it is; in a socket also all that the same rank sent behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "dist/nccl/api.h"

namespace zl::test {

// What both sides must mean alike. Without padding: it is compared and sent as bytes.
struct WireHeader {
  Collective kind = Collective::barrier;
  NcclType type = NcclType::int32;
  uint64_t part = 0;    // 1, 2: ranks connect
  uint64_t number = 0;  // among the collectives, or among what this pair sends in this direction
  uint64_t count = 0;   // [n] as the call counts
  uint64_t bytes = 0;   // that follow
};

struct WireMessage {
  WireHeader header;
  char* data;
  int* open;  // counted down when the message has moved
};

class FakeWire {
 public:
  virtual ~FakeWire() = default;    // closes everything at once
  virtual bool taken() const = 0;   // another is this rank
  virtual bool joined() const = 0;  // all ranks have come
  // A rank is gone that has not sent its barrier, which is the last that ranks send.
  virtual bool lost() const = 0;
  virtual void send(int to, const WireMessage& message) = 0;
  virtual void receive(int from, const WireMessage& message) = 0;
  virtual bool move() = 0;  // as far as it goes now; returns whether anything moved
};

// A message is copied when both sides have posted it, and done for both then.
class MemoryWire final : public FakeWire {
 public:
  struct Hub {                       // of one communicator
    std::vector<MemoryWire*> ranks;  // null: not there
    size_t came = 0;
  };
  MemoryWire(Hub& hub, int rank, int size);
  ~MemoryWire() override;
  bool taken() const override { return hub_.ranks[size_t(rank_)] != this; }
  bool joined() const override { return hub_.came == hub_.ranks.size(); }
  bool lost() const override { return false; }
  void send(int to, const WireMessage& message) override { sends_[size_t(to)].push_back(message); }
  void receive(int from, const WireMessage& message) override {
    receives_.emplace_back(from, message);
  }
  bool move() override;

 private:
  Hub& hub_;
  const int rank_;
  std::vector<std::deque<WireMessage>> sends_;  // by rank
  std::deque<std::pair<int, WireMessage>> receives_;
};

// A send is done when its bytes have left, received or not.
class SocketWire final : public FakeWire {
 public:
  SocketWire(const std::string& name, int rank, int size);
  ~SocketWire() override;

  bool taken() const override { return taken_; }
  bool joined() const override;
  bool lost() const override;
  void send(int to, const WireMessage& message) override {
    peers_[size_t(to)].sends.push_back(message);
  }
  void receive(int from, const WireMessage& message) override {
    peers_[size_t(from)].receives.push_back(message);
  }
  bool move() override;

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
