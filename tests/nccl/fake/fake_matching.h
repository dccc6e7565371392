// Inside the fake: what ranks have asked NCCL for, and who meets whom. Under the fake's mutex.
#pragma once

#include <set>
#include <utility>

#include "dist/communicator.h"
#include "tests/nccl/fake/fake_nccl.h"

namespace zl {

// What NCCL's own struct is to libnccl. Kept until the fake dies, so that a use after its end is
// seen.
struct NcclComm {
  using Batches = std::deque<std::shared_ptr<test::FakeNccl::Batch>>;
  int rank = 0, size = 1;
  int world = 0;  // its place among the fake's worlds
  std::thread::id thread;
  test::Trouble trouble;
  bool in_group = false;  // its thread has opened a group for it
  bool finalizing = false, aborted = false, destroyed = false;
  std::shared_ptr<test::FakeNccl::Batch> open;  // the group that NCCL has not taken
  std::set<std::pair<Collective, int>> seen;    // sends and receives so far, by peer
  Batches batches;                              // not done, in the order of the calls
  bool ended() const { return aborted || destroyed; }
};

}  // namespace zl

namespace zl::test {

struct FakeNccl::Operation {
  Collective kind;
  NcclData data;
  int peer;  // or the root
  void* stream;
  bool done = false;
};

// What one call or one group asks for.
struct FakeNccl::Batch {
  std::vector<Operation> operations;
  int polls = kPolls;  // that say in progress, at least, before NCCL takes it
  std::set<std::pair<Collective, int>> first;  // its sends and receives that connect two ranks
  bool met = false;                            // all other sides of `first` have issued theirs
  bool active = false;                         // its stream has come to it
  bool stalled = false, done = false;
};

struct FakeNccl::World {
  NcclUniqueId id;
  std::vector<NcclComm*> comms;  // by rank; null: not joined
  bool complete() const;
  bool has_open(int rank, Collective kind, int peer) const;  // a group that connects them so
};

}  // namespace zl::test
