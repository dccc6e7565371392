// Ranks that each have a GPU, with NCCL moving their data.
//
// Reductions are ordered by default: dist/ordered/ sums in rank order, so that the bits
// are those of ranks that are threads. Between machines such a sum may take several groups of NCCL,
// with a kernel after each. All are enqueued at once, and the host waits for none of them.
//
// Ranks first check that they all make the same call, so that NCCL never sees a mismatch. A call
// runs on the communication stream, after everything enqueued on the compute stream before it.
// `Work::wait()` does not block the host: it makes the compute stream wait, so what is enqueued
// there afterwards runs after the data has moved. Until then kernels that were enqueued between the
// call and its wait() run beside it. Only the host can notice that NCCL hangs, so a watchdog does
// (dist/nccl/watchdog.h). What it finds is thrown by the rank's next call, wait() or finish().
// After a failure a synchronisation with the GPU returns all the same, and what it reads may be
// garbage: a value is sound only if a later call, finish() or require_running() does not throw.
//
// A send and a receive match when both have been called. Their data moves when they are waited for;
// then each side issues all its matched calls as one NCCL group, which completes as a whole. So a
// rank should wait for all its sends and receives before its next collective. An order that NCCL
// cannot complete ends at the deadline. If ranks are threads, a third one must not allocate or free
// GPU memory meanwhile, which could hang all three (dist/fingerprint_check.h).
//
// A rank's memory, its backend and its communicator belong to its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/nccl/watchdog.h"

namespace zl {

class NcclCommunicator final : public Communicator {
 public:
  // Returns when all ranks have joined and are connected with each other. All ranks meet in
  // `others` before any calls NCCL, so a rank that fails before that fails the others at once.
  // Throws CommunicationError. `ordered = false` lets NCCL add: faster for many small calls,
  // without scratch memory, but rounding then depends on sizes and on the machine.
  NcclCommunicator(const NcclJoin& join, FingerprintCheck& others, EventStream& events,
                   bool ordered);
  ~NcclCommunicator() override = default;  // aborts NCCL unless finish() has returned

  // In a group, calls are issued at its end, and may be waited for only then. Groups do not nest.
  void begin_group() override { in_group_ = true; }
  void end_group() override;

  void compare_calls_only_on_timeout() override { others_.compare_calls_only_on_timeout(); }
  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override;

  void require_running() override { require_no_failure("reading results"); }

  // Returns when the data of all calls has moved and all ranks have left NCCL, groups first; waits
  // for the others without a deadline.
  void finish() override;

 private:
  struct Operation;  // a call of this rank, until its data has moved
  class Transport;   // its sends and receives

  // In NCCL's communicator of these ranks. A group's lives until all ranks finish.
  struct Membership {
    Membership(const NcclJoin& join, FingerprintCheck& others)
        : handle(join, others), watchdog(join, handle, others) {}
    NcclHandle handle;
    NcclWatchdog watchdog;
  };

  NcclCommunicator(NcclCommunicator& all, const Split& split, const NcclJoin& join);
  void join();

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

  std::shared_ptr<Operation> prepare(const Tensor& tensor, const Call& call);
  Work start(const std::shared_ptr<Operation>& operation);
  Work reduction(const Tensor& tensor, const Tensor& start, const Call& call);
  Work ordered_reduction(const Tensor& tensor, const Tensor& start, const Call& call);
  Work unordered_reduction(const Tensor& tensor, const Call& call);
  Work point_to_point(const Tensor& tensor, const Call& call);
  void issue_matched();
  void issue(const std::vector<Operation*>& operations);
  void enqueue(const std::vector<Operation*>& operations);
  void complete(Operation& operation);
  void release(Operation& operation) noexcept;
  void check(const Call& call, const std::function<void()>& others_call);
  void join_or_leave(std::string_view doing, const std::function<void()>& action);
  [[noreturn]] void fail(const Call& call, const std::string& why);
  void require_no_failure(std::string_view doing);

  const NcclJoin join_;
  const NcclApi& api_;
  FingerprintCheck& others_;
  std::vector<std::shared_ptr<Membership>>
      memberships_;     // of all ranks: of each group, then its own
  NcclHandle& handle_;  // of the last one
  NcclWatchdog& watchdog_;
  const bool ordered_;
  int ranks_per_machine_ = 1;
  bool in_group_ = false;
  std::vector<Operation*> group_;   // to be issued at the end of the group, in order
  std::vector<Operation*> posted_;  // sends and receives that have not been issued, in order
};

}  // namespace zl
