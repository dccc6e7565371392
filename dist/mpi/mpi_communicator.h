// Ranks that are processes on CPUs, with MPI moving their data.
//
// MPI moves bytes, in messages of at most 1 GiB, and by default adds nothing: reductions are those
// of dist/ordered/, in rank order, with the bits of ranks that are threads. `ordered = false` lets
// MPI add f32, f64 and i32, and promises rounding only.
//
// Ranks first check that they all make the same call, as on NCCL (dist/fingerprint_check.h). A call
// posts its messages and returns. They move while a rank is inside MPI, and it is there only while
// it waits: in `Work::wait()`, or for the others to come to a call. So overlapping communication
// with computation hides little here, which is true of most programs on MPI. While a rank waits,
// all its calls go on, also through their kernels, so ranks may wait for them in any order. No
// function of MPI that is used here blocks, except the one that makes a group in which MPI adds:
// between polls a rank sees whether another one has failed, or its time is over.
//
// After a failure a rank never calls MPI again. Its unfinished calls keep their memory until the
// process ends: other ranks may still read what it sends, and MPI cannot withdraw a send or a
// collective. It does not call MPI_Abort either, which would kill the ranks before they have said
// why.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/fingerprint_check.h"
#include "dist/mpi/messages.h"

namespace zl {

struct MpiJoin {
  const MpiApi& api;
  int rank, size;
  std::chrono::milliseconds timeout;  // of each wait; 0: none
  std::atomic<const char*>& inside;   // the MPI function that the rank is in, for reports
  std::string machine;                // the name of the rank's machine
};

class MpiCommunicator final : public Communicator {
 public:
  // Returns when all ranks have started MPI. Throws CommunicationError, and InputError if MPI
  // disagrees with the launcher about rank or size.
  MpiCommunicator(const MpiJoin& join, FingerprintCheck& others, EventStream& events, bool ordered);
  ~MpiCommunicator() override;

  void compare_calls_only_on_timeout() override { others_.compare_calls_only_on_timeout(); }
  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override;
  void require_running() override;
  // Returns when all ranks have come here; waits for them without a deadline.
  void finish() override;

 private:
  MpiCommunicator(MpiCommunicator& all, const Split& split);
  struct Operation;  // a call of this rank, until its data has moved
  struct Shared {    // by the communicator of all ranks and its groups
    MpiCalls calls;
    int tags = 1;                       // for each group and each of two kinds of calls
    std::vector<Operation*> in_flight;  // in the order of their calls
  };

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override;
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override;
  Work do_all_gather(const Tensor& full, const Call& call) override;
  Work do_broadcast(const Tensor& inout, const Call& call) override;
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override;
  Work do_barrier(const Call& call) override;
  Work do_send(const Tensor& from, const Call& call) override { return point_to_point(from, call); }
  Work do_receive(const Tensor& to, const Call& call) override { return point_to_point(to, call); }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call& call) override;
  std::unique_ptr<Communicator> do_split(const Split& split) override;

  void start(const MpiJoin& join);
  std::shared_ptr<Operation> prepare(const Tensor& tensor, const Call& call);
  Work issue(const std::shared_ptr<Operation>& operation);
  Work reduction(const Tensor& tensor, const Tensor& start, const Call& call);
  Work unordered_reduction(const Tensor& tensor, const Call& call);
  Work point_to_point(const Tensor& tensor, const Call& call);
  int tag_of(const Call& call) const;
  void progress();
  void wait(Operation& operation);
  void release(Operation& operation) noexcept;
  void in_mpi(const Call& call, const std::function<void()>& use);
  void check(const std::function<void()>& others_call);
  [[noreturn]] void fail(const Call& call, const std::string& why);

  FingerprintCheck& others_;
  const std::chrono::milliseconds timeout_;
  const bool ordered_;
  std::vector<int> members_;           // ranks of MPI
  std::vector<std::string> machines_;  // of the members
  int ranks_per_machine_ = 1;
  const std::shared_ptr<Shared> shared_;
  int mpi_group_ = 0;  // of MpiApi::make_group, if MPI adds
};

}  // namespace zl
