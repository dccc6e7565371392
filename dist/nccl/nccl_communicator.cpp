#include "dist/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "dist/nccl/errors.h"
#include "dist/nccl/watchdog.h"
#include "dist/ordered/steps.h"
#include "dist/wire.h"
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

// A rank's place in NCCL's communicator of these ranks. That of a group lives until all ranks
// finish.
struct Membership {
  Membership(const NcclJoin& join, FingerprintCheck& others)
      : handle(join, others), watchdog(join, handle, others) {}
  NcclHandle handle;
  NcclWatchdog watchdog;
};

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

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclJoin& join, FingerprintCheck& others, EventStream& events)
      : Communicator(join.rank, join.size, events),
        join_(join),
        others_(others),
        memberships_{std::make_shared<Membership>(join, others)},
        handle_(memberships_.back()->handle),
        watchdog_(memberships_.back()->watchdog) {
    this->join();
  }

  void begin_group() override { in_group_ = true; }
  void end_group() override {
    in_group_ = false;
    if (!group_.empty()) issue(std::exchange(group_, {}));
  }
  void compare_calls_only_on_timeout() override { others_.compare_calls_only_on_timeout(); }
  int64_t reduction_scratch_bytes(int64_t count, Dtype dtype) const override {
    return join_.ordered ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
  }
  void require_running() override { require_no_failure("reading results"); }

  void finish() override {
    Communicator::finish();
    for (const auto& one : memberships_) {
      NcclWatchdog& watchdog = one->watchdog;
      for (auto last = watchdog.oldest(); last; last = watchdog.oldest()) {
        try {
          one->handle.wait("the transfer", [&] { return last->moved->done(); });
        } catch (const std::exception& error) {
          fail(last->call, error.what());
        }
        watchdog.set_done(last->record);
      }
    }
    (void)all_gather_object("", "leaving NCCL");
    for (const auto& one : memberships_) one->watchdog.stop();
    require_no_failure("leaving NCCL");
    join_or_leave("leaving NCCL", [&] {
      for (const auto& one : memberships_) one->handle.finish();
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

  NcclCommunicator(NcclCommunicator& all, const Split& split, const NcclJoin& join)
      : Communicator(all, split),
        join_(join),
        others_(all.others_),
        memberships_{std::make_shared<Membership>(join, others_)},
        handle_(memberships_.back()->handle),
        watchdog_(memberships_.back()->watchdog) {
    this->join();
    all.memberships_.insert(all.memberships_.end() - 1, memberships_.back());
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    const bool first = split.members.front() == rank();
    NcclJoin join = join_;
    if (first) join.id = nccl_unique_id(join_.api);
    const Call telling{.kind = Collective::barrier, .name = "the id of NCCL", .group = split.group};
    const std::string id =
        others_.all_gather_object(telling, WireWriter().put(join.id).take(), events()).front();
    join.id = WireReader(id).get<NcclUniqueId>();
    join.rank = int(std::ranges::find(split.members, rank()) - split.members.begin());
    join.size = int(split.members.size());
    return std::unique_ptr<Communicator>(new NcclCommunicator(*this, split, join));
  }

  void join() {
    // These do not count as calls of the program, which are numbered from 1.
    const Call joining{.kind = Collective::barrier,
                       .name = "joining NCCL",
                       .has_deadline = false,
                       .group = group()};
    ranks_.per_machine = ranks_per_machine(do_all_gather_object(join_.machine, joining));
    join_or_leave(joining.name, [&] { handle_.join(join_); });
  }

  void require_no_failure(std::string_view doing) {
    for (const auto& one : memberships_)
      one->watchdog.require_no_failure({.kind = Collective::barrier, .name = doing});
  }

  void join_or_leave(std::string_view doing, const std::function<void()>& action) {
    try {
      action();
    } catch (const CommunicationError& error) {
      // Before this rank leaves, which the others would see.
      others_.fail(str("rank ", group().of_run(rank()), " ", doing, ": ", error.what()));
      handle_.abort();
      others_.throw_failure({.kind = Collective::barrier, .name = doing});
    }
  }

  [[noreturn]] void fail(const Call& call, const std::string& why) {
    watchdog_.require_no_failure(call);  // it knows the operation that failed first
    const std::string text =
        str("rank ", group().of_run(rank()), " in ", describe(call), ": ", why);
    others_.fail(text);
    handle_.abort();
    others_.throw_failure(call);
  }

  // A rank whose check fails leaves NCCL at once.
  void check(const Call& call, const std::function<void()>& others_call) {
    watchdog_.require_no_failure(call);
    try {
      others_call();
    } catch (const CommunicationError&) {
      handle_.abort();
      throw;
    }
  }

  Work start(const Tensor& tensor, const Call& call, Steps steps) {
    Backend& backend = tensor.backend();
    require(backend.holds_data() &&
                (!join_.api.needs_gpu || backend.native_stream(Stream::communication)),
            name(call.kind), " '", call.name,
            "': NCCL moves the memory of GPUs, and this tensor is on ", backend.name());
    if (call.count == 0) steps.clear();
    const auto op = std::make_shared<Operation>(*this, call, backend, std::move(steps));
    check(call, [&] { op->record = others_.require_same_call(call, events()); });
    op->state = Operation::State::checked;
    all_ranks_came(call);
    group_.push_back(op.get());
    if (!in_group_) issue(std::exchange(group_, {}));
    return Work([op] { op->owner.complete(*op); });
  }

  Work reduction(const Tensor& tensor, const Tensor& first_addend, const Call& call) {
    if (join_.ordered)
      return start(tensor, call, ordered_reduction_steps(tensor, first_addend, call, ranks_));
    require(!first_addend.defined(), name(call.kind), " '", call.name,
            "': a sum that continues from a start needs ordered sums, and here NCCL adds");
    return start(tensor, call, {unordered_reduction(tensor, call)});
  }

  // NCCL adds into the part that is this rank's result, and a kernel divides it.
  Step unordered_reduction(const Tensor& tensor, const Call& call) {
    const bool all = call.kind == Collective::all_reduce;
    const int64_t count = all ? call.count : call.count / size();
    char *const from = address_at(tensor, 0), *const sums =
                                                  address_at(tensor, all ? 0 : rank() * count);
    Step step{[=](ChunkTransport& to) {
      static_cast<Messages&>(to).add(all, from, sums, count, tensor.dtype());
    }};
    if (call.reduction == Reduction::mean)
      step.kernel = [=, ranks = size()] {
        tensor.backend().ordered_sum(
            {{&sums, 1}, {&sums, 1}, 0, count, tensor.dtype(), true, ranks});
      };
    return step;
  }

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return reduction(inout, start, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return reduction(full, start, call);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return start(full, call, all_gather_steps(full, ranks_));
  }
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    return start(inout, call, {{[=](ChunkTransport& to) {
                   static_cast<Messages&>(to).broadcast(address_at(inout, 0), inout.numel(),
                                                        inout.dtype(), call.peer);
                 }}});
  }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return start(from, call, all_to_all_steps(from, to, ranks_));
  }
  Work do_barrier(const Call& call) override {
    check(call,
          [&] { others_.set_state(others_.require_same_call(call, events()), CallState::done); });
    all_ranks_came(call);
    return {};
  }
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    std::vector<std::string> all;
    check(call, [&] { all = others_.all_gather_object(call, text, events()); });
    return all;
  }

  void issue(const std::vector<Operation*>& operations) {
    const Call& first = operations.front()->call;
    watchdog_.require_no_failure(first);
    try {
      if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
      enqueue(operations);
    } catch (const std::exception& error) {
      for (Operation* op : operations) op->state = Operation::State::issued;  // a part of it may be
      fail(first, error.what());
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
      if (op->moved) watchdog_.watch({op->call, op->record, op->moved, began}, op->backend);
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
      if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
      if (op.moved) watchdog_.waited_for(op.record);
      op.backend.wait_event(Stream::compute, op.moved.get());
    } catch (const std::exception& error) {
      fail(op.call, error.what());
    }
    watchdog_.require_no_failure(op.call);  // what has moved may be garbage
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
  FingerprintCheck& others_;
  std::vector<std::shared_ptr<Membership>>
      memberships_;     // of all ranks: of each group, then its own
  NcclHandle& handle_;  // of the last one
  NcclWatchdog& watchdog_;
  RankTopology ranks_{rank(), size(), 1};
  bool in_group_ = false;
  std::vector<Operation*> group_;  // to be issued at the end of the group, in order
};

}  // namespace

std::unique_ptr<Communicator> nccl_communicator(const NcclJoin& join, FingerprintCheck& others,
                                                EventStream& events) {
  return std::make_unique<NcclCommunicator>(join, others, events);
}

}  // namespace zl
