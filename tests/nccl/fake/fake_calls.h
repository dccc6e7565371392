// What one rank has asked NCCL for, carried out as messages between pairs of ranks.
//
// Every rank of a collective sends every other one all that it has: at least a header, so that none
// gets past a call that does not fit.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/nccl/fake/fake_wires.h"

namespace zl::test {

// The buffers of a call; a send has no `to`, a receive no `from`.
struct NcclData {
  const void* from;
  void* to;
  size_t count;  // [n] as nccl.h counts it for that call
  NcclType type;
};

struct AskedOfNccl {
  Collective kind;  // barrier: the end, when no rank will ask for anything any more
  NcclData data;
  int peer;
  void* stream = nullptr;
};

inline bool between_two(Collective kind) {
  return kind == Collective::send || kind == Collective::receive;
}
size_t size_of_type(NcclType type);  // [B]

// What has been asked for so far, by which both sides of a message count alike.
struct AskedSoFar {
  explicit AskedSoFar(int ranks) : sends(size_t(ranks)), receives(size_t(ranks)) {}
  uint64_t collectives = 0;
  std::vector<uint64_t> sends, receives;  // by rank
};

// A send or a receive, and the other rank.
using ConnectedSide = std::pair<Collective, int>;

class FakeCall {
 public:
  FakeCall(const AskedOfNccl& asked, int rank, int size, AskedSoFar& so_far);
  FakeCall(const FakeCall&) = delete;  // messages know where it is

  bool between_two() const { return test::between_two(asked_.kind); }
  bool done() const { return state_ == State::done; }
  bool move_on(FakeWire& wire);  // whether there was anything to do; then the wire has more to
                                 // move, or this is done

 private:
  enum class State { asked, begun, done };

  void begin(FakeWire& wire);
  void finish();
  size_t bytes() const;  // that it gives
  char* of_rank(int rank) { return scratch_.data() + size_t(rank) * bytes(); }

  const AskedOfNccl asked_;
  const int rank_, size_;
  const size_t element_;  // [B]
  WireHeader header_;
  int open_ = 0;               // messages that have not moved
  std::vector<char> scratch_;  // what each rank has given
  State state_ = State::asked;
};

// One call, or those of a group. Collectives work one after the other, what goes between two ranks
// at once. First the ranks connect that meet in it for the first time. NCCL's src/transport.cc
// (2.28.9), ncclTransportP2pSetup: it blocks in bootstrapRecv until every peer of the group has
// issued its side, and "We need to sync ranks here": until every peer has got that far, too.
class FakeBatch {
 public:
  FakeBatch(void* stream, bool stalls, std::vector<ConnectedSide> first)
      : stream(stream), first_(std::move(first)), stalls_(stalls) {}
  void add(std::unique_ptr<FakeCall> call) { calls_.push_back(std::move(call)); }
  bool connect(FakeWire& wire);  // both return whether there was anything to do
  bool move_on(FakeWire& wire);
  bool connected() const { return rounds_ == 2 && open_ == 0; }
  bool done() const;
  void give_up() { given_up_ = true; }  // its stream goes on

  void* const stream;
  int polls = 3;        // that say in progress, at least, before NCCL takes it
  bool active = false;  // its stream has come to it

 private:
  std::vector<std::unique_ptr<FakeCall>> calls_;
  const std::vector<ConnectedSide> first_;
  int open_ = 0;    // messages between them that have not moved
  int rounds_ = 0;  // of these messages, begun
  const bool stalls_;
  bool given_up_ = false;
};

}  // namespace zl::test
