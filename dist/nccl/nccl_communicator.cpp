#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "dist/nccl/errors.h"
#include "dist/nccl/handle.h"
#include "dist/nccl/nccl_transport.h"
#include "dist/processes/process_communicator.h"
#include "dist/processes/wire.h"
#include "dist/trace/host_id.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

NcclType nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return NcclType::float32;
    case Dtype::bf16: return NcclType::bfloat16;
    case Dtype::f16: return NcclType::float16;
    case Dtype::f64: return NcclType::float64;
    case Dtype::i32: return NcclType::int32;
    case Dtype::u8: return NcclType::uint8;
  }
  throw std::invalid_argument("NCCL has no such type");
}

// The messages of one call, on the communication stream of its tensors.
class Messages final : public ChunkTransport {
 public:
  Messages(const NcclApi& api, const NcclHandle& handle, Backend& backend)
      : api_(api), handle_(handle), backend_(backend) {}
  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override {
    const NcclData data{from, nullptr, size_t(count), nccl_type(dtype)};
    handle_.take("ncclSend", [&] { return api_.send(data, to_rank, stream()); });
  }
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override {
    const NcclData data{nullptr, to, size_t(count), nccl_type(dtype)};
    handle_.take("ncclRecv", [&] { return api_.receive(data, from_rank, stream()); });
  }
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override {
    const NcclData data{from, to, size_t(count), nccl_type(dtype)};
    handle_.take("ncclAllGather", [&] { return api_.all_gather(data, stream()); });
  }
  void broadcast(char* inout, int64_t count, Dtype dtype, int root) {
    const NcclData data{inout, inout, size_t(count), nccl_type(dtype)};
    handle_.take("ncclBroadcast", [&] { return api_.broadcast(data, root, stream()); });
  }
  // NCCL adds, in the order that it likes; `all`: all_reduce, else reduce_scatter.
  void add(bool all, const char* from, char* to, int64_t count, Dtype dtype) {
    const NcclData data{from, to, size_t(count), nccl_type(dtype)};
    handle_.take(all ? "ncclAllReduce" : "ncclReduceScatter",
                 [&] { return (all ? api_.all_reduce : api_.reduce_scatter)(data, stream()); });
  }

 private:
  NcclStream stream() const {
    return {handle_.comm(), backend_.native_stream(Stream::communication)};
  }
  const NcclApi& api_;
  const NcclHandle& handle_;
  Backend& backend_;
};

class NcclCommunicator final : public ProcessCommunicator {
 public:
  NcclCommunicator(const NcclJoin& join, ControlClient& others, EventStream& events)
      : ProcessCommunicator(join.rank, join.size, events, others, join.ordered, "NCCL"),
        join_(join),
        handles_{std::make_shared<NcclHandle>(join, others)},
        handle_(*handles_.back()) {
    this->join();
  }

  void begin_group() override { in_group_ = true; }
  void end_group() override {
    in_group_ = false;
    if (!group_.empty()) issue(std::exchange(group_, {}));
  }

  void finish() override {
    Communicator::finish();
    for (const auto& handle : handles_) handle->wait_for_operations();
    (void)all_gather_object("", "leaving NCCL");
    join_or_leave("leaving NCCL", [&] {
      for (const auto& handle : handles_) handle->finish();
    });
  }

 private:
  // A call of this rank until its data has moved. Its Work owns it, so that no tensor outlives the
  // rank's memory. Each exchange of its steps is one NCCL group.
  struct Operation {
    enum class State { checked, issued, done };
    Operation(NcclCommunicator& owner, const Call& call, Backend& backend, Steps steps)
        : owner(owner), call(call), backend(backend), steps(std::move(steps)) {}
    Operation(const Operation&) = delete;
    ~Operation() { owner.release(*this); }

    NcclCommunicator& owner;
    const Call call;
    Backend& backend;
    Steps steps;
    int64_t record = 0;  // in the flight recorder
    std::shared_ptr<const StreamEvent> moved;
    State state = State::done;  // nothing to end before the ranks have checked the call
  };

  // NCCL's communicator of a group lives until all ranks finish.
  NcclCommunicator(NcclCommunicator& all, const Split& split, const NcclJoin& join)
      : ProcessCommunicator(all, split),
        join_(join),
        handles_{std::make_shared<NcclHandle>(join, others_)},
        handle_(*handles_.back()) {
    this->join();
    all.handles_.insert(all.handles_.end() - 1, handles_.back());
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    NcclJoin join = join_;
    join.rank = int(std::ranges::find(split.members, rank()) - split.members.begin());
    join.size = int(split.members.size());
    return std::unique_ptr<Communicator>(new NcclCommunicator(*this, split, join));
  }

  void join() {
    // This does not count as a call of the program, which are numbered from 1.
    const Call joining{.kind = Collective::barrier,
                       .name = "joining NCCL",
                       .has_deadline = false,
                       .group = group()};
    NcclUniqueId id;  // that of the first rank counts
    if (rank() == 0) id = nccl_unique_id(join_.api);
    std::vector<std::string> machines;
    const std::string mine = WireWriter().put(id).text(join_.machine).take();
    for (const std::string& text : do_all_gather_object(mine, joining)) {
      WireReader wire(text);
      const auto of_rank = wire.get<NcclUniqueId>();
      if (machines.empty()) id = of_rank;
      machines.push_back(wire.text());
    }
    ranks_.per_machine = ranks_per_machine(machines);
    join_or_leave(joining.name, [&] { handle_.join(id); });
  }

  void join_or_leave(std::string_view doing, const std::function<void()>& action) {
    try {
      require_no_failure(doing);
      action();
    } catch (const CommunicationError& error) {
      // Before this rank leaves, which the others would see.
      others_.fail(str("rank ", group().of_run(rank()), " ", doing, ": ", error.what()));
      handle_.abort();
      others_.throw_failure({.kind = Collective::barrier, .name = doing});
    }
  }

  Work issue(const Tensor& tensor, const Call& call, Steps steps) override {
    Backend& backend = tensor.backend();
    require(backend.holds_data() &&
                (!join_.api.needs_gpu || backend.native_stream(Stream::communication)),
            name(call.kind), " '", call.name,
            "': NCCL moves the memory of GPUs, and this tensor is on ", backend.name());
    if (call.count == 0) steps.clear();
    const auto op = std::make_shared<Operation>(*this, call, backend, std::move(steps));
    op->record = others_.require_same_call(call, events());
    op->state = Operation::State::checked;
    all_ranks_came(call);
    group_.push_back(op.get());
    if (!in_group_) issue(std::exchange(group_, {}));
    return Work([op] { op->owner.complete(*op); });
  }

  Step unordered_sum(const Tensor& tensor, const Call& call) override {
    const bool all = call.kind == Collective::all_reduce;
    const int64_t count = all ? call.count : call.count / size();
    char* const sums = address_at(tensor, all ? 0 : rank() * count);
    return {[=](ChunkTransport& to) {
      static_cast<Messages&>(to).add(all, address_at(tensor, 0), sums, count, tensor.dtype());
    }};
  }

  Work do_broadcast(const Tensor& inout, const Call& call) override {
    return issue(inout, call, {{[=](ChunkTransport& to) {
                   static_cast<Messages&>(to).broadcast(address_at(inout, 0), inout.numel(),
                                                        inout.dtype(), call.peer);
                 }}});
  }

  void issue(const std::vector<Operation*>& operations) {
    try {
      (void)handle_.comm();
      enqueue(operations);
    } catch (const std::exception& error) {
      for (Operation* op : operations) op->state = Operation::State::issued;  // a part of it may be
      handle_.fail(operations.front()->call, error.what());
    }
  }

  // NCCL needs the stream for itself until it has taken a group, and kernels that read what a group
  // receives must be enqueued after it.
  void enqueue(const std::vector<Operation*>& operations) {
    const Backend* last = nullptr;
    size_t steps = 0;
    for (const Operation* op : operations) {
      steps = std::max(steps, op->steps.size());
      if (&op->backend != std::exchange(last, &op->backend))
        op->backend.wait_event(Stream::communication,
                               op->backend.record_event(Stream::compute).get());
    }
    const auto began = NcclHandle::Clock::now();
    for (size_t step = 0; step < steps; ++step) {
      handle_.group([&] {
        for (const Operation* op : operations)
          if (step < op->steps.size()) {
            Messages messages(join_.api, handle_, op->backend);
            op->steps[step].exchange(messages);
          }
      });
      for (const Operation* op : operations)
        if (step < op->steps.size() && op->steps[step].kernel) op->steps[step].kernel();
    }
    for (Operation* op : operations) {
      op->moved = op->backend.record_event(Stream::communication);
      op->state = Operation::State::issued;
      others_.set_state(op->record, CallState::posted);
      if (op->moved) handle_.watch({op->call, op->record, op->moved, began}, op->backend);
    }
  }

  // The compute stream waits, and the host goes on; without a stream the data has moved already. So
  // a reduction may still use its scratch, which is freed here. That is safe because a free block
  // is used again only by work behind the compute stream, which now waits for the reduction: by
  // kernels in it, and by operations, which begin after an event of it (tensor/block_pool.h).
  void complete(Operation& op) {
    require(op.state != Operation::State::checked, describe(op.call),
            " is waited for before its group has ended");
    try {
      (void)handle_.comm();
      if (op.moved) handle_.waited_for(op.record);
      op.backend.wait_event(Stream::compute, op.moved.get());
    } catch (const std::exception& error) {
      handle_.fail(op.call, error.what());
    }
    if (others_.failed()) others_.throw_failure(op.call);  // what has moved may be garbage
    if (!op.moved) others_.set_state(op.record, CallState::done);
    op.state = Operation::State::done;
    op.steps.clear();
  }

  // An operation that was not waited for. If this rank has not issued it, others may wait for its
  // part forever; an exception that unwinds the stack ends them. If it has, the buffers must stay
  // until the compute stream waits for it. If NCCL was aborted, kernels may still follow on the
  // stream; after half a second the GPU itself hangs.
  void release(Operation& op) noexcept {
    try {
      if (others_.failed()) handle_.abort();
      if (op.state == Operation::State::checked && std::uncaught_exceptions() == 0)
        others_.fail(str("rank ", group().of_run(rank()), " has not issued ", describe(op.call)));
      if (op.state == Operation::State::issued && !handle_.ended()) complete(op);
    } catch (const std::exception&) {  // the next call throws it again
    }
    try {
      if (op.state == Operation::State::issued) {
        const auto event = op.backend.record_event(Stream::communication);
        const auto limit = NcclHandle::Clock::now() + std::chrono::milliseconds(500);
        while (!op.backend.event_done(event.get()) && NcclHandle::Clock::now() < limit)
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
  ProcessTransport transport;
  transport.join = [=, &api](ControlClient& others, EventStream& events) {
    if (nccl.choose_gpu) nccl.choose_gpu(place.rank);
    const NcclJoin join{api,         place.rank,
                        place.size,  options.timeout,
                        *inside,     nccl.machine ? nccl.machine(place.rank) : machine_id(),
                        nccl.ordered};
    return std::make_unique<NcclCommunicator>(join, others, events);
  };
  transport.where = [inside] { return where_text("NCCL", *inside); };
  return transport;
}

}  // namespace zl
