#include "dist/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "dist/ordered/ordered_reduction.h"
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

char* at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.address()) + element * size_of(tensor.dtype());
}

}  // namespace

// Its Work owns it, so that no tensor outlives the rank's memory. Its steps run on the
// communication stream one after the other; each exchange is one NCCL group.
struct NcclCommunicator::Operation {
  enum class State { checked, issued, done };
  struct Step {
    std::function<void(Transport&)> exchange;
    std::function<void()> kernel = {};
  };
  Operation(NcclCommunicator& owner, const Tensor& tensor, const Call& call)
      : owner(owner), call(call), tensor(tensor) {}
  Operation(const Operation&) = delete;
  ~Operation() { owner.release(*this); }

  NcclStream stream() const {
    return {owner.handle_.comm(), tensor.backend().native_stream(Stream::communication)};
  }
  // `count` elements [n] that are read at one element of the tensor and written at another.
  NcclData data(int64_t from, int64_t to, int64_t count) const {
    return {at(tensor, from), at(tensor, to), size_t(count), nccl_type(call.dtype)};
  }

  NcclCommunicator& owner;
  const Call call;
  const Tensor tensor;
  Tensor to;  // of an all_to_all
  std::unique_ptr<OrderedReduction> reduction;
  std::vector<Step> steps;
  int64_t record = 0;  // in the flight recorder
  std::shared_ptr<const StreamEvent> moved;
  State state = State::done;  // nothing to end before the ranks have checked the call
};

class NcclCommunicator::Transport final : public ChunkTransport {
 public:
  explicit Transport(const Operation& operation) : operation_(operation) {}
  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override {
    const NcclData data{from, nullptr, size_t(count), nccl_type(dtype)};
    handle().take("ncclSend", [&] { return api().send(data, to_rank, operation_.stream()); });
  }
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override {
    const NcclData data{nullptr, to, size_t(count), nccl_type(dtype)};
    handle().take("ncclRecv", [&] { return api().receive(data, from_rank, operation_.stream()); });
  }
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override {
    const NcclData data{from, to, size_t(count), nccl_type(dtype)};
    handle().take("ncclAllGather", [&] { return api().all_gather(data, operation_.stream()); });
  }

 private:
  const NcclHandle& handle() const { return operation_.owner.handle_; }
  const NcclApi& api() const { return operation_.owner.api_; }
  const Operation& operation_;
};

int64_t NcclCommunicator::reduction_scratch_bytes(int64_t count, Dtype dtype) const {
  return ordered_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
}

void NcclCommunicator::end_group() {
  in_group_ = false;
  if (!group_.empty()) issue(std::exchange(group_, {}));
}

// The first rank to fail throws its own error, the others that of the run.
void NcclCommunicator::fail(const Call& call, const std::string& why) {
  watchdog_.require_no_failure(call);  // it knows the operation that failed first
  const std::string text = str("rank ", group().of_run(rank()), " in ", describe(call), ": ", why);
  const bool first = others_.fail(text);
  handle_.abort();
  if (first) throw CommunicationError(text);
  others_.throw_failure(call);
}

// A rank whose check fails leaves NCCL at once.
void NcclCommunicator::check(const Call& call, const std::function<void()>& others_call) {
  watchdog_.require_no_failure(call);
  try {
    others_call();
  } catch (const CommunicationError&) {
    handle_.abort();
    throw;
  }
}

std::shared_ptr<NcclCommunicator::Operation> NcclCommunicator::prepare(const Tensor& tensor,
                                                                       const Call& call) {
  Backend& backend = tensor.backend();
  require(backend.holds_data() && (!api_.needs_gpu || backend.native_stream(Stream::communication)),
          name(call.kind), " '", call.name,
          "': NCCL moves the memory of GPUs, and this tensor is on ", backend.name());
  return std::make_shared<Operation>(*this, tensor, call);
}

Work NcclCommunicator::start(const std::shared_ptr<Operation>& operation) {
  Operation* const op = operation.get();
  check(op->call, [&] { op->record = others_.require_same_call(op->call, events()); });
  op->state = Operation::State::checked;
  all_ranks_came(op->call);
  group_.push_back(op);
  if (!in_group_) issue(std::exchange(group_, {}));
  return Work([operation] { operation->owner.complete(*operation); });
}

Work NcclCommunicator::ordered_reduction(const Tensor& tensor, const Tensor& first_addend,
                                         const Call& call) {
  const auto operation = prepare(tensor, call);
  Operation* const op = operation.get();
  op->reduction =
      zl::ordered_reduction(tensor, first_addend, call, {rank(), size(), ranks_per_machine_});
  for (int step = 0; step < op->reduction->steps(); ++step)
    op->steps.push_back({[op, step](Transport& to) { op->reduction->exchange(step, to); },
                         [op, step] { op->reduction->add(step); }});
  if (call.kind == Collective::all_reduce)
    op->steps.push_back({[op](Transport& to) { op->reduction->gather_sums(to); }});
  return start(operation);
}

// NCCL adds into the part that is this rank's result, and a kernel divides it.
Work NcclCommunicator::unordered_reduction(const Tensor& tensor, const Call& call) {
  const auto operation = prepare(tensor, call);
  Operation* const op = operation.get();
  const bool all = call.kind == Collective::all_reduce;
  const int64_t count = all ? call.count : call.count / size(), to = all ? 0 : rank() * count;
  Operation::Step& step = op->steps.emplace_back();
  step.exchange = [=, this](Transport&) {
    const NcclData data = op->data(0, to, count);
    handle_.take(all ? "ncclAllReduce" : "ncclReduceScatter",
                 [&] { return (all ? api_.all_reduce : api_.reduce_scatter)(data, op->stream()); });
  };
  if (call.reduction == Reduction::mean)
    step.kernel = [=, this] {
      char* const sums = at(op->tensor, to);
      op->tensor.backend().ordered_sum(
          {{&sums, 1}, {&sums, 1}, 0, count, op->call.dtype, true, size()});
    };
  return start(operation);
}

Work NcclCommunicator::reduction(const Tensor& tensor, const Tensor& start, const Call& call) {
  if (ordered_) return ordered_reduction(tensor, start, call);
  require(!start.defined(), name(call.kind), " '", call.name,
          "': a sum that continues from a start needs ordered sums, and here NCCL adds");
  return unordered_reduction(tensor, call);
}

Work NcclCommunicator::do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) {
  return reduction(inout, start, call);
}

Work NcclCommunicator::do_reduce_scatter(const Tensor& full, const Tensor& start,
                                         const Call& call) {
  return reduction(full, start, call);
}

Work NcclCommunicator::do_all_gather(const Tensor& full, const Call& call) {
  const auto operation = prepare(full, call);
  operation->steps.push_back({[=, this, shard = call.count / size()](Transport& to) {
    to.all_gather(at(full, rank() * shard), at(full, 0), shard, call.dtype);
  }});
  return start(operation);
}

Work NcclCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  const auto operation = prepare(inout, call);
  operation->steps.push_back({[op = operation.get(), this](Transport&) {
    handle_.take("ncclBroadcast", [&] {
      return api_.broadcast(op->data(0, 0, op->call.count), op->call.peer, op->stream());
    });
  }});
  return start(operation);
}

Work NcclCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  const auto operation = prepare(from, call);
  Operation* const op = operation.get();
  op->to = to;
  const int64_t shard = call.count / size();
  Operation::Step& step = op->steps.emplace_back();
  step.exchange = [=, this](Transport& transport) {
    for (int i = 1; i < size(); ++i) {
      const int next = (rank() + i) % size(), last = (rank() + size() - i) % size();
      transport.send(at(op->tensor, next * shard), shard, op->call.dtype, next);
      transport.receive(at(op->to, last * shard), shard, op->call.dtype, last);
    }
  };
  step.kernel = [=, this] {
    op->tensor.backend().move_bytes(at(op->tensor, rank() * shard), at(op->to, rank() * shard),
                                    shard * size_of(op->call.dtype));
  };
  return start(operation);
}

Work NcclCommunicator::do_barrier(const Call& call) {
  check(call,
        [&] { others_.set_state(others_.require_same_call(call, events()), CallState::done); });
  all_ranks_came(call);
  return {};
}

std::vector<std::string> NcclCommunicator::do_all_gather_object(const std::string& text,
                                                                const Call& call) {
  std::vector<std::string> all;
  check(call, [&] { all = others_.all_gather_object(call, text, events()); });
  return all;
}

Work NcclCommunicator::point_to_point(const Tensor& tensor, const Call& call) {
  const auto operation = prepare(tensor, call);
  Operation* const op = operation.get();
  op->steps.push_back({[op, call](Transport& other) {
    if (call.kind == Collective::send)
      other.send(at(op->tensor, 0), call.count, call.dtype, call.peer);
    else
      other.receive(at(op->tensor, 0), call.count, call.dtype, call.peer);
  }});
  check(call, [&] { op->record = others_.post(call, events()); });
  op->state = Operation::State::checked;
  posted_.push_back(op);
  return Work([operation, this] {
    check(operation->call, [&] { others_.wait_for_match(operation->record); });
    all_ranks_came(operation->call);
    issue_matched();
    complete(*operation);
  });
}

void NcclCommunicator::issue_matched() {
  std::vector<Operation*> matched;
  for (Operation* op : posted_)
    if (others_.has_match(op->record)) matched.push_back(op);
  std::erase_if(posted_, [&](Operation* op) { return std::ranges::count(matched, op) > 0; });
  if (!matched.empty()) issue(matched);
}

void NcclCommunicator::issue(const std::vector<Operation*>& operations) {
  const Call& first = operations.front()->call;
  const auto give_to_nccl = [&] {
    try {
      if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
      enqueue(operations);
    } catch (const std::exception& error) {
      for (Operation* op : operations) op->state = Operation::State::issued;  // a part of it may be
      fail(first, error.what());
    }
  };
  if (first.point_to_point()) return give_to_nccl();
  check(first, [&] { others_.issue_together(first, give_to_nccl); });
}

// NCCL needs the stream for itself until it has taken a group, and kernels that read what a group
// receives must be enqueued after it.
void NcclCommunicator::enqueue(const std::vector<Operation*>& operations) {
  const Backend* last = nullptr;
  size_t steps = 0;
  for (Operation* op : operations) {
    if (op->call.count == 0) op->steps.clear();
    steps = std::max(steps, op->steps.size());
    Backend& backend = op->tensor.backend();
    if (&backend != std::exchange(last, &backend))
      backend.wait_event(Stream::communication, backend.record_event(Stream::compute).get());
  }
  const auto began = NcclHandle::Clock::now();
  for (size_t step = 0; step < steps; ++step) {
    handle_.group([&] {
      for (Operation* op : operations)
        if (Transport transport(*op); step < op->steps.size()) op->steps[step].exchange(transport);
    });
    for (Operation* op : operations)
      if (step < op->steps.size() && op->steps[step].kernel) op->steps[step].kernel();
  }
  for (Operation* op : operations) {
    Backend& backend = op->tensor.backend();
    op->moved = backend.record_event(Stream::communication);
    op->state = Operation::State::issued;
    others_.set_state(op->record, CallState::posted);
    if (op->moved) watchdog_.watch({op->call, op->record, op->moved, began}, backend);
  }
}

// The compute stream waits, and the host goes on; without a stream the data has moved already. So a
// reduction may still use its scratch, which is freed here. That is safe because a free block is
// used again only by work behind the compute stream, which now waits for the reduction: by kernels
// in it, and by operations, which begin after an event of it (tensor/block_pool.h).
void NcclCommunicator::complete(Operation& op) {
  require(op.state != Operation::State::checked, describe(op.call),
          " is waited for before its group has ended");
  try {
    if (handle_.ended()) throw CommunicationError("this rank has left NCCL");
    if (op.moved) watchdog_.waited_for(op.record);
    op.tensor.backend().wait_event(Stream::compute, op.moved.get());
  } catch (const std::exception& error) {
    fail(op.call, error.what());
  }
  watchdog_.require_no_failure(op.call);  // what has moved may be garbage
  if (!op.moved) others_.set_state(op.record, CallState::done);
  op.state = Operation::State::done;
  op.reduction.reset();
}

// An operation that was not waited for. If this rank has not issued it, others may wait for its
// part forever. If it has, the buffers must stay until the compute stream waits for it. If NCCL was
// aborted, kernels may still follow on the stream; after half a second the GPU itself hangs.
void NcclCommunicator::release(Operation& op) noexcept {
  try {
    if (op.state == Operation::State::checked && !op.call.point_to_point())
      (void)others_.fail(
          str("rank ", group().of_run(rank()), " has not issued ", describe(op.call)));
    if (op.state == Operation::State::issued && !handle_.ended()) complete(op);
  } catch (const std::exception&) {  // the next call throws it again
  }
  try {
    if (op.state == Operation::State::issued) {
      Backend& backend = op.tensor.backend();
      const auto event = backend.record_event(Stream::communication);
      const auto limit = NcclHandle::Clock::now() + std::chrono::milliseconds(500);
      while (!backend.event_done(event.get()) && NcclHandle::Clock::now() < limit)
        std::this_thread::yield();
    }
  } catch (const std::exception&) {  // of a GPU that does not answer
  }
  std::erase(group_, &op);
  std::erase(posted_, &op);
  if (op.call.point_to_point()) others_.withdraw(op.record, std::uncaught_exceptions() > 0);
}

}  // namespace zl
