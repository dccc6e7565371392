// NCCL without GPUs: it moves real bytes between ranks that are threads, and misbehaves on command.
//
// It is as strict as NCCL is said to be: it notes as misuse what NCCL leaves undefined (a call
// while another is in progress, two threads on one communicator, a communicator used after its end
// or ended twice or never). A second thread may poll and abort, but not while a group is open. A
// group is in progress for some polls, and then until the pairs of ranks that meet in it for the
// first time are connected. Until then it has not begun, and its stream refuses all else. Like NCCL
// it never notices that ranks disagree: what does not fit never completes. One mutex guards all
// that ranks share, also the bytes: the rank that completes a call moves them for all ranks.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/nccl/api.h"
#include "tests/nccl/fake/fake_stream.h"
#include "tests/nccl/fake/faults.h"

namespace zl::test {

// Whose streams calls come in: LaggingCpu's, or those of the GPU that tests/cuda/on_cpu makes of
// the CPU.
enum class Streams { lagging, emulated };

class FakeNccl {
 public:
  explicit FakeNccl(std::vector<Fault> faults = {}, int version = 22809,
                    Streams streams = Streams::lagging);
  ~FakeNccl();  // one at a time: the table's functions know no other way to find it
  FakeNccl(const FakeNccl&) = delete;

  NcclApi api() const;  // to be used while this lives
  // What was done that NCCL does not allow, and who was not ended exactly once; "" if nothing. When
  // all ranks have ended.
  std::string misuse() const;
  int calls(const std::string& function) const;  // of all ranks
  size_t in_flight(
      int rank) const;  // groups that NCCL has taken from a rank, and that are not done
  // Counts from now on what goes from one machine to another; given: the machine of each rank.
  // NCCL's collectives go around the ring of ranks, as nccl-tests' doc/PERFORMANCE.md says.
  void set_machines(std::vector<int> of_rank);
  int64_t bytes_between_machines() const;

  struct Operation;
  struct Batch;
  struct Functions;  // what the table points to
  static constexpr int kPolls = 3;

 private:
  struct World;
  NcclResult enter(const char* function, NcclComm* comm, std::unique_lock<std::mutex>& lock);
  NcclResult post(NcclComm* comm, std::vector<Operation> operations,
                  std::unique_lock<std::mutex>& lock);
  void reserve(const Batch& batch, bool reserved);  // without the lock: streams take theirs first
  bool may_take(NcclComm& comm);
  void take(NcclComm& comm, std::unique_lock<std::mutex>& lock);
  bool in_progress(NcclComm& comm) const;
  void note(const std::string& misuse) { misuse_ += misuse + "; "; }
  bool connected(World& world, const NcclComm& comm);
  void count_bytes(int from, int to, size_t bytes);
  void match(World& world);
  bool match_collective(World& world);
  bool match_pair(World& world, int sender, int receiver);

  const int version_;
  const Streams streams_;
  mutable std::mutex mutex_;  // guards all below, and the bytes that are moved
  std::deque<NcclComm> comms_;
  std::deque<World> worlds_;
  FaultScript script_;
  std::string misuse_;
  std::vector<int> machines_;
  int64_t bytes_between_machines_ = 0;
  std::condition_variable never_;
};

}  // namespace zl::test
