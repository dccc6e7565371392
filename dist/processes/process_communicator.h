// What the communicators of ranks that are processes have in common: ranks check that they all make
// the same call, then a transport moves the data of its steps (dist/ordered/steps.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/ordered/steps.h"
#include "dist/processes/control_client.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {

class ProcessCommunicator : public Communicator {
 public:
  void compare_calls_only_on_timeout() override { others_.compare_calls_only_on_timeout(); }
  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override {
    return ordered_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
  }
  void require_running() override {
    others_.carry_out({.kind = Collective::barrier, .name = "reading results"}, [] {});
  }

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

  // A call of this rank until its data has moved. Its Work owns it, so that no tensor outlives the
  // rank's memory.
  struct Operation {
    ~Operation() { owner.release(*this); }
    ProcessCommunicator& owner;
    const Call call;
    Backend& backend;
    Steps steps;
    const int64_t record;  // its number in the flight recorder
    // checked: all ranks make this call, or it is compared later; posted: its data is under way;
    // done: its data has moved, or the compute stream waits for that.
    enum class State { checked, posted, done } state = State::checked;
    std::shared_ptr<const StreamEvent> moved = {};  // of NCCL: the event at which its data has
  };
  // Begins to carry out the steps, one after the other.
  virtual void post(Operation& op) = 0;
  // Work::wait(): returns when the last step is done, or later work on the compute stream waits for
  // it. Throws if the run has failed before that.
  virtual void complete(Operation& op) = 0;
  virtual void release(Operation& op) noexcept = 0;  // it may not have been waited for
  virtual bool moves_memory_of(Backend& backend) const = 0;
  // Checks a call with the other ranks, and posts it.
  Work issue(const Tensor& tensor, const Call& call, Steps steps) {
    Backend& backend = tensor.backend();
    require(backend.holds_data() && moves_memory_of(backend), name(call.kind), " '", call.name,
            "': ", transport_, " cannot move a tensor on ", backend.name());
    if (call.count == 0) steps.clear();
    const int64_t record = others_.require_same_call(call, events());
    all_ranks_came(call);
    const std::shared_ptr<Operation> op(
        new Operation{*this, call, backend, std::move(steps), record});
    post(*op);
    return Work([op] { op->owner.complete(*op); });
  }
  // The library adds, in place. It leaves `count` [n] sums at `sums`: at the tensor's begin, or in
  // a reduce_scatter in the local shard.
  virtual Step unordered_sum(const Tensor& tensor, const Call& call, int64_t count, char* sums) = 0;

  ControlClient& others_;
  const bool ordered_;
  const char* const transport_;
  RankTopology ranks_{rank(), size(), 1};

  // Small values, which go through rank 0's server instead of the transport.
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    return others_.all_gather_object(call, text, events());
  }

 private:
  // Steps of an ordered sum, or the transport's sum and then the division of a mean.
  Work reduction(const Tensor& tensor, const Tensor& start, const Call& call) {
    if (ordered_) return issue(tensor, call, ordered_reduction_steps(tensor, start, call, ranks_));
    require(!start.defined(), name(call.kind), " '", call.name,
            "': a sum that continues from a start needs ordered sums, and here ", transport_,
            " adds");
    const bool all = call.kind == Collective::all_reduce;
    const int64_t count = all ? call.count : call.count / size();
    char* const sums = address_at(tensor, all ? 0 : rank() * count);
    Step step = unordered_sum(tensor, call, count, sums);
    if (call.reduction == Reduction::mean)
      step.kernel = [=, ranks = size()] {
        tensor.backend().ordered_sum({{&sums, 1}, {&sums, 1}, 0, count, call.dtype, true, ranks});
      };
    return issue(tensor, call, {step});
  }
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return reduction(inout, start, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return reduction(full, start, call);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return issue(full, call, all_gather_steps(full, ranks_));
  }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return issue(from, call, all_to_all_steps(from, to, ranks_));
  }
  Work do_barrier(const Call& call) override {
    others_.set_state(others_.require_same_call(call, events()), CallState::done);
    all_ranks_came(call);
    return {};
  }
};

}  // namespace zl
