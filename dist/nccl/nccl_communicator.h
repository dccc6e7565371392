// Ranks that each have a GPU of their own, and whose data NCCL moves.
//
// What threads do by reading each other's buffers is done here by sending: reductions are ordered
// unless told otherwise. Each rank receives the others' values of its own shard into scratch, adds
// them in rank order by the same kernel, and an all_reduce then gathers the shards: the same bytes
// on the wire as NCCL's own, and the same bits as ranks that are threads.
//
// The ranks first agree on each call, so that NCCL never sees calls that do not fit. A call works
// in the communication lane: behind all that the compute lane was told before it. Waiting for its
// Work is the host's, because only the host can notice that NCCL waits in vain; what the compute
// lane is told afterwards comes behind the data.
//
// A send and a receive meet when both have been called; their data moves when they are waited for,
// on either side all that have met as one group of NCCL, which ends when all of it has moved. So
// there is less freedom than among threads: a rank should wait for all its sends and receives
// before its next collective. What NCCL cannot do in any order ends at the deadline.
//
// A rank's memory, its backend and its communicator belong to its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/nccl/handle.h"

namespace zl {

class NcclCommunicator final : public Communicator {
 public:
  // Returns when all ranks have joined, and before that lets all come to `others`, so that a rank
  // that cannot come ends the rest without NCCL. Throws CommunicationError. `ordered = false`
  // leaves the sums to NCCL: quicker where they are many and small, without scratch, and right but
  // for rounding, which then depends on sizes and on the machine.
  NcclCommunicator(const NcclJoin& join, std::unique_ptr<Agreement> others, EventStream& events,
                   bool ordered);
  ~NcclCommunicator() override;  // what is under way is given up, unless finish() has returned

  // In a group, calls are issued at its end, and may be waited for only then. Groups do not nest.
  void begin_group() override;
  void end_group() override;

  void trust_calls() override { others_->trust_calls(); }

  // After the rank's last call; returns when all ranks have left NCCL, however long the others take
  // to come. Throws CommunicationError.
  void finish();

 private:
  struct Moving;  // a call of this rank, from its agreement until its data has moved
  using Part = std::function<void()>;

  Work do_all_reduce(const Tensor& inout, const Call& call) override;
  Work do_reduce_scatter(const Tensor& whole, const Call& call) override;
  Work do_all_gather(const Tensor& whole, const Call& call) override;
  Work do_broadcast(const Tensor& inout, const Call& call) override;
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override;
  Work do_barrier(const Call& call) override;
  Work do_send(const Tensor& from, const Call& call) override { return mail(from, call); }
  Work do_receive(const Tensor& to, const Call& call) override { return mail(to, call); }
  std::vector<std::string> do_exchange(const std::string& text, const Call& call) override;

  std::shared_ptr<Moving> prepare(const Tensor& tensor, const Call& call);
  void plan_ordered(Moving& moving, int64_t chunk);
  Part gather(const Moving& moving, int64_t chunk);
  Work go(const std::shared_ptr<Moving>& moving);
  Work mail(const Tensor& tensor, const Call& call);
  void issue_mail();
  void issue(const std::vector<Moving*>& all);
  void complete(Moving& moving);
  void drop(Moving& moving) noexcept;
  void settle(Moving& moving);
  void or_abort(const std::function<void()>& agree);
  void or_fail(std::string_view doing, const std::function<void()>& what);
  [[noreturn]] void give_up(const Call& call, const std::string& why);

  void send(const Moving& moving, const char* from, int64_t count, int to_rank);
  void receive(const Moving& moving, char* to, int64_t count, int from_rank);
  NcclLane lane(const Moving& moving) const;

  const NcclApi& api_;
  const std::unique_ptr<Agreement> others_;
  NcclHandle handle_;
  const bool ordered_;
  bool in_group_ = false;
  std::vector<Moving*> group_;  // met and not issued yet, in the order of the calls
  std::vector<Moving*> mail_;   // sends and receives that were not issued yet, likewise
};

}  // namespace zl
