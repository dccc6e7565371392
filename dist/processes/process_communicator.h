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
    return ordered_scratch(count, rank(), size()) * size_of(dtype);
  }
  void require_running() override {
    others_.carry_out({.kind = Collective::barrier, .name = "reading results"}, [] {});
  }

 protected:
  ProcessCommunicator(int rank, int size, EventStream& events, ControlClient& others)
      : Communicator(rank, size, events), others_(others) {}
  ProcessCommunicator(ProcessCommunicator& all, const Split& split)
      : Communicator(all, split), others_(all.others_) {}

  // Carries out the steps of a call, one after the other. All ranks make it, or it is compared
  // later; `record` is its number in the flight recorder. The result keeps what the steps keep, and
  // its wait() returns when the last one is done, or later work on the compute stream waits for it.
  // Throws if the run has failed before that.
  virtual Work carry_out(const Call& call, Backend& backend, Steps steps, int64_t record) = 0;
  virtual bool moves_memory_of(Backend& backend) const = 0;
  // Checks a call with the other ranks, and carries it out.
  Work issue(const Tensor& tensor, const Call& call, Steps steps) {
    Backend& backend = tensor.backend();
    require(backend.holds_data() && moves_memory_of(backend), name(call.kind), " '", call.name,
            "': these ranks cannot move a tensor on ", backend.name());
    if (call.count == 0) steps.clear();
    const int64_t record = others_.require_same_call(call, events());
    all_ranks_came(call);
    return carry_out(call, backend, std::move(steps), record);
  }
  // Of an all_reduce or reduce_scatter: in rank order, unless the transport adds in an order of its
  // own.
  virtual Steps reduction_steps(const Tensor& tensor, const Tensor& start, const Call& call) {
    return ordered_reduction_steps(tensor, start, call, ranks_);
  }

  ControlClient& others_;
  RankTopology ranks_{rank(), size(), 1};

  // Small values, which go through rank 0's server instead of the transport.
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    return others_.all_gather_object(call, text, events());
  }

 private:
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return issue(inout, call, reduction_steps(inout, start, call));
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return issue(full, call, reduction_steps(full, start, call));
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return issue(full, call, all_gather_steps(full, ranks_));
  }
  // From the root to each other rank. A tree would be faster, and the project's stages need none.
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    return issue(inout, call, {{[=, this](ChunkTransport& ranks) {
                   char* const values = address_at(inout, 0);
                   if (rank() != call.peer)
                     return ranks.receive(values, call.count, call.dtype, call.peer);
                   for (int to = 0; to < size(); ++to)
                     if (to != rank()) ranks.send(values, call.count, call.dtype, to);
                 }}});
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
