#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "dist/nccl/handle.h"
#include "dist/nccl/nccl_transport.h"
#include "dist/processes/process_communicator.h"
#include "dist/processes/wire.h"
#include "dist/trace/host_id.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

class NcclCommunicator final : public ProcessCommunicator {
 public:
  NcclCommunicator(const LaunchedRank& place, const NcclJoin& join, ControlClient& others,
                   EventStream& events)
      : ProcessCommunicator(place.rank, place.size, events, others),
        join_(join),
        handles_{std::make_shared<NcclHandle>(join, rank(), size(), others)},
        handle_(*handles_.back()) {
    this->join();
  }

  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override {
    return join_.ordered ? ProcessCommunicator::reduction_scratch_bytes(count, dtype) : 0;
  }
  void begin_group() override { in_group_ = true; }
  void end_group() override {
    in_group_ = false;
    const auto operations = std::exchange(group_, {});
    if (operations.empty()) return;
    handle_.carry_out(operations.front()->call, [&] { enqueue(operations); });
  }

  void finish() override {
    Communicator::finish();
    for (const auto& handle : handles_) handle->wait_for_operations();
    (void)all_gather_object("", "leaving NCCL");
    handle_.carry_out({.kind = Collective::barrier, .name = "leaving NCCL"}, [&] {
      for (const auto& handle : handles_) handle->finish();
    });
  }

 private:
  // A call of this rank until its data has moved. Its Work owns it, so that no tensor outlives the
  // rank's memory.
  struct Operation {
    ~Operation() { owner.release(*this); }
    NcclCommunicator& owner;
    const Call call;
    Backend& backend;
    Steps steps;
    const int64_t record;  // its number in the flight recorder
    // issued: its data is under way; done: the compute stream waits for that.
    enum class State { waits_for_group, issued, done } state = State::waits_for_group;
    std::shared_ptr<const StreamEvent> moved = {};  // the event at which its data has
  };

  // NCCL's communicator of a group lives until all ranks finish.
  NcclCommunicator(NcclCommunicator& all, const Split& split)
      : ProcessCommunicator(all, split),
        join_(all.join_),
        handles_{std::make_shared<NcclHandle>(join_, rank(), size(), others_)},
        handle_(*handles_.back()) {
    this->join();
    all.handles_.insert(all.handles_.end() - 1, handles_.back());
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    return std::unique_ptr<Communicator>(new NcclCommunicator(*this, split));
  }

  void join() {
    // This does not count as a call of the program, which are numbered from 1.
    const Call joining{.kind = Collective::barrier,
                       .name = "joining NCCL",
                       .has_deadline = false,
                       .group = group()};
    NcclUniqueId id;  // that of the first rank counts
    if (rank() == 0) id = handle_.unique_id();
    std::vector<std::string> machines;
    const std::string mine = to_bytes(id, join_.machine);
    for (const std::string& text : do_all_gather_object(mine, joining)) {
      WireReader wire(text);
      const auto of_rank = wire.get<NcclUniqueId>();
      if (machines.empty()) id = of_rank;
      machines.push_back(wire.get<std::string>());
    }
    ranks_.per_machine = ranks_per_machine(machines);
    handle_.carry_out(joining, [&] { handle_.join(id); });
  }

  bool moves_memory_of(Backend& backend) const override {
    return !join_.api.needs_gpu || backend.native_stream(Stream::communication);
  }

  Work carry_out(const Call& call, Backend& backend, Steps steps, int64_t record) override {
    const std::shared_ptr<Operation> op(
        new Operation{*this, call, backend, std::move(steps), record});
    group_.push_back(op.get());
    if (!in_group_) end_group();
    return Work([op] { op->owner.complete(*op); });
  }

  // If NCCL adds, it leaves the sums in place: in a reduce_scatter in the local shard.
  Steps reduction_steps(const Tensor& tensor, const Tensor& start, const Call& call) override {
    if (join_.ordered) return ProcessCommunicator::reduction_steps(tensor, start, call);
    require(!start.defined(), name(call.kind), " '", call.name,
            "': a sum that continues from a start needs ordered sums, and here NCCL adds");
    const bool all = call.kind == Collective::all_reduce;
    const int64_t count = all ? call.count : call.count / size();
    char* const sums = address_at(tensor, all ? 0 : rank() * count);
    Step step{[=, this](ChunkTransport&) {
      handle_.add(all, address_at(tensor, 0), sums, count, call.dtype);
    }};
    if (call.reduction == Reduction::mean)
      step.kernel = [=, ranks = size()] {
        tensor.backend().ordered_sum({{&sums, 1}, {&sums, 1}, 0, count, call.dtype, true, ranks});
      };
    return {step};
  }

  // Each exchange of the steps is one NCCL group. NCCL needs the stream for itself until it has
  // taken a group, and kernels that read what a group receives must be enqueued after it.
  void enqueue(const std::vector<Operation*>& operations) {
    Backend& backend = operations.front()->backend;  // which all have
    backend.wait_event(Stream::communication, backend.record_event(Stream::compute).get());
    size_t steps = 0;
    for (Operation* op : operations) {
      require(&op->backend == &backend, describe(op->call),
              " is on another device than the first call of its group");
      op->state = Operation::State::issued;  // a part of it, if what follows fails
      steps = std::max(steps, op->steps.size());
    }
    const int64_t began = running_nanoseconds();
    for (size_t step = 0; step < steps; ++step) {
      handle_.group(backend.native_stream(Stream::communication), [&] {
        for (const Operation* op : operations)
          if (step < op->steps.size()) op->steps[step].exchange(handle_);
      });
      for (const Operation* op : operations)
        if (step < op->steps.size() && op->steps[step].kernel) op->steps[step].kernel();
    }
    for (Operation* op : operations) {
      op->moved = backend.record_event(Stream::communication);
      others_.set_state(op->record, CallState::posted);
      if (op->moved) handle_.watch({op->call, op->record, op->moved, began}, backend);
    }
  }

  // The compute stream waits, and the host goes on; without a stream the data has moved already. So
  // a reduction may still use its scratch, which is freed here. That is safe because a free block
  // is used again only by work behind the compute stream, which now waits for the reduction: by
  // kernels in it, and by operations, which begin after an event of it (tensor/block_pool.h).
  void complete(Operation& op) {
    require(op.state != Operation::State::waits_for_group, describe(op.call),
            " is waited for before its group has ended");
    handle_.carry_out(op.call, [&] {
      others_.set_state(op.record, CallState::moving);  // unless the watchdog knows that it is done
      op.backend.wait_event(Stream::compute, op.moved.get());
    });
    if (!op.moved) others_.set_state(op.record, CallState::done);
    op.state = Operation::State::done;
    op.steps.clear();
  }

  // An operation that was not waited for; this rank's next call throws. If it was issued, the
  // buffers must stay until the compute stream waits for it. If NCCL was aborted, kernels may still
  // follow on the stream. A GPU on which they have not ended after half a second hangs.
  void release(Operation& op) noexcept {
    try {
      if (others_.failed()) handle_.abort();
      if (op.state == Operation::State::issued && !handle_.ended()) complete(op);
    } catch (const std::exception&) {  // the next call throws it again
    }
    try {
      if (op.state == Operation::State::issued) {
        const auto event = op.backend.record_event(Stream::communication);
        const int64_t limit = steady_nanoseconds() + 500'000'000;
        while (!op.backend.event_done(event.get()) && steady_nanoseconds() < limit)
          std::this_thread::yield();
      }
    } catch (const std::exception&) {  // of a GPU that does not answer
    }
    std::erase(group_, &op);
  }

  const NcclJoin join_;
  std::vector<std::shared_ptr<NcclHandle>> handles_;  // of all ranks: of each group, then its own
  NcclHandle& handle_;                                // the last one
  bool in_group_ = false;
  std::vector<Operation*> group_;  // to be issued at the end of the group, in order
};

}  // namespace

ProcessTransport nccl_transport(const LaunchedRank& place, const RankOptions& options,
                                const NcclOptions& nccl) {
  const NcclApi& api = require_nccl(nccl.api);
  const auto inside = std::make_shared<std::atomic<const char*>>(nullptr);
  const auto join = [=, &api](ControlClient& others, EventStream& events) {
    if (nccl.choose_gpu) nccl.choose_gpu(place.rank);
    const NcclJoin join{api, options.timeout, *inside,
                        nccl.machine ? nccl.machine(place.rank) : machine_id(), nccl.ordered};
    return std::make_unique<NcclCommunicator>(place, join, others, events);
  };
  return {join, [inside] { return inside->load(); }};
}

}  // namespace zl
