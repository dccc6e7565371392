// What the communicators of ranks that are processes have in common: ranks check that they all make
// the same call, then a transport moves the data of its steps (dist/ordered/steps.h).
#pragma once

#include <string>
#include <vector>

#include "dist/ordered/steps.h"
#include "dist/processes/control_client.h"

namespace zl {

class ProcessCommunicator : public Communicator {
 public:
  void compare_calls_only_on_timeout() override { others_.compare_calls_only_on_timeout(); }
  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override;
  void require_running() override { require_no_failure("reading results"); }

 protected:
  // `ordered`: sums in rank order; else the transport of this name adds.
  ProcessCommunicator(int rank, int size, EventStream& events, ControlClient& others, bool ordered,
                      const char* name)
      : Communicator(rank, size, events), others_(others), ordered_(ordered), transport_(name) {}
  ProcessCommunicator(ProcessCommunicator& all, const Split& split)
      : Communicator(all, split),
        others_(all.others_),
        ordered_(all.ordered_),
        transport_(all.transport_) {}

  // Checks a call with the other ranks, and carries it out.
  virtual Work issue(const Tensor& tensor, const Call& call, Steps steps) = 0;
  // The library adds, in place. It leaves a reduce_scatter's sum in the local shard.
  virtual Step unordered_sum(const Tensor& tensor, const Call& call) = 0;

  // Throws CommunicationError with the cause if the run has failed, and with what was being done.
  void require_no_failure(std::string_view doing) const;
  ControlClient& others_;
  const bool ordered_;
  const char* const transport_;
  RankTopology ranks_{rank(), size(), 1};

  // Small values, which go through rank 0's server instead of the transport.
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call& call) override;

 private:
  // Steps of an ordered sum, or the transport's sum and then the division of a mean.
  Work reduction(const Tensor& tensor, const Tensor& start, const Call& call);
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override;
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override;
  Work do_all_gather(const Tensor& full, const Call& call) override;
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override;
  Work do_barrier(const Call& call) override;
};

}  // namespace zl
