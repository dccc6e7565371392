// NCCL without GPUs: it moves real bytes between ranks that are threads or processes, and
// misbehaves on command.
//
// It is as strict as NCCL is said to be: it notes as misuse what NCCL leaves undefined (a call
// while another is in progress, two threads on one communicator, a communicator used after its end
// or ended twice or never). A second thread may poll and abort, but not while a group is open. A
// group is in progress for some polls, and then until the pairs of ranks that meet in it for the
// first time are connected. Until then it has not begun, and its stream refuses all else. Like NCCL
// it never notices that ranks disagree: what does not fit never completes. Nothing moves by itself,
// only while a rank calls NCCL or executes its stream; one mutex guards all that the ranks of a
// process share, also the bytes, and what any of them does moves on all of them. A process that
// dies leaves nothing behind, not even a file.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/nccl/api.h"
#include "tests/nccl/fake/fake_calls.h"
#include "tests/nccl/fake/fake_stream.h"
#include "tests/nccl/fake/faults.h"

namespace zl {

// What NCCL's own struct is to libnccl. Kept until the fake dies, so that a use after its end is
// seen.
struct NcclComm {
  NcclComm(int rank, int size) : rank(rank), size(size), so_far(size) {}
  const int rank, size;
  const std::thread::id thread = std::this_thread::get_id();
  test::Trouble trouble;
  bool in_group = false;  // its thread has opened a group for it
  bool finalizing = false, aborted = false, destroyed = false;
  test::AskedSoFar so_far;
  std::unique_ptr<test::FakeWire> wire;  // until the end; null: joining has failed
  using Batch = std::shared_ptr<test::FakeBatch>;
  Batch open;                          // the group that NCCL has not taken
  std::deque<Batch> batches;           // not done, in the order of the calls
  Batch leaving;                       // its last message to each rank
  std::set<test::ConnectedSide> seen;  // so far

  bool ended() const { return aborted || destroyed; }
  bool move();  // whether anything moved
  void close();
};

}  // namespace zl

namespace zl::test {

// Whether the others hear of a process that is gone: as ncclRemoteError from then on, or never.
// NCCL does either.
enum class Deaths { noticed, unnoticed };

class FakeNccl {
 public:
  // For ranks that are threads of this process.
  explicit FakeNccl(std::vector<Fault> faults = {}, int version = 22809,
                    const FakeStreams& streams = kLaggingStreams)
      : FakeNccl(Where{.version = version}, std::move(faults), streams) {}
  // For ranks that are processes, or threads that meet as processes do.
  FakeNccl(std::vector<Fault> faults, Deaths deaths, const FakeStreams& streams = {})
      : FakeNccl(Where{.processes = true, .deaths = deaths}, std::move(faults), streams) {}
  ~FakeNccl();  // one at a time in a process: the table's functions know no other way to find it
  FakeNccl(const FakeNccl&) = delete;

  NcclApi api() const;  // to be used while this lives
  // What was done in this process that NCCL does not allow, and who was not ended exactly once; ""
  // if nothing. When all ranks have ended.
  std::string misuse() const;
  int calls(const std::string& function) const;  // in this process
  // Groups that NCCL has taken from a rank, and that are not done.
  size_t in_flight(int rank) const;
  // Counts from now on what goes from one machine to another; given: the machine of each rank.
  // NCCL's collectives go around the ring of ranks, as nccl-tests' doc/PERFORMANCE.md says.
  void set_machines(std::vector<int> of_rank);
  int64_t bytes_between_machines() const;

  // All ranks are on one GPU: as NCCL, it refuses them if they have the host's name.
  bool one_gpu = false;

  struct Functions;  // what the table points to

 private:
  struct Where {
    bool processes = false;
    Deaths deaths = Deaths::unnoticed;
    int version = 22809;
  };
  FakeNccl(Where where, std::vector<Fault> faults, const FakeStreams& streams);
  using Lock = std::unique_lock<std::mutex>;
  NcclResult enter(const char* function, NcclComm* comm, Lock& lock);
  NcclResult post(NcclComm& comm, const std::vector<AskedOfNccl>& calls, Lock& lock);
  void finish(NcclComm& comm);
  bool may_take(NcclComm& comm);
  void take(NcclComm& comm, Lock& lock);
  bool in_progress(NcclComm& comm);
  void move();
  void note(const std::string& misuse) { misuse_ += misuse + "; "; }
  void count_bytes(const NcclComm& comm, const AskedOfNccl& call);

  const Where where_;
  const FakeStreams streams_;
  mutable std::mutex mutex_;  // guards all below, and the bytes that are moved
  std::map<std::pair<std::string, int>, MemoryWire::Hub>
      hubs_;  // by the id and the number of ranks
  std::deque<NcclComm> comms_;
  FaultScript script_;
  std::string misuse_;
  std::vector<int> machines_;
  int64_t bytes_between_machines_ = 0;
  std::condition_variable never_;
};

}  // namespace zl::test
