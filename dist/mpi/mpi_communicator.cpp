#include "dist/mpi/mpi_communicator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "dist/mpi/library.h"
#include "dist/mpi/session.h"
#include "dist/ordered/ordered_reduction.h"
#include "dist/polling.h"
#include "dist/trace/flight_recorder.h"
#include "dist/wire.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kGroups = 128;  // that a rank can be in without their messages being mistaken

const Call kJoining{.kind = Collective::barrier, .name = "joining MPI", .has_deadline = false};

char* at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.address()) + element * size_of(tensor.dtype());
}

MpiType mpi_type(const Call& call) {
  switch (call.dtype) {
    case Dtype::f32: return MpiType::f32;
    case Dtype::f64: return MpiType::f64;
    case Dtype::i32: return MpiType::i32;
    default: break;
  }
  throw InputError(str(name(call.kind), " '", call.name, "': MPI cannot add ", name(call.dtype),
                       "; leave sums to zerolab (\"zerolab\": {\"ordered\": true}), or use fp32"));
}

}  // namespace

// Its Work owns it, so that no tensor outlives the rank's memory. Its steps run one after the
// other: messages, then what a kernel makes of them.
struct MpiCommunicator::Operation {
  struct Step {
    std::function<void(MpiMessages&)> exchange;
    std::function<void()> kernel = {};
  };
  struct Buffers {
    Tensor tensor, to;
    std::unique_ptr<OrderedReduction> reduction;  // its scratch memory
  };
  Operation(MpiCommunicator& owner, const Tensor& tensor, const Call& call)
      : owner(owner),
        call(call),
        tensor(tensor),
        messages(owner.shared_->calls, owner.members_, owner.rank(), owner.tag_of(call)) {}
  Operation(const Operation&) = delete;
  ~Operation() { owner.release(*this); }

  bool done() const { return step == steps.size(); }
  void begin_step() {
    if (!done() && steps[step].exchange) steps[step].exchange(messages);
  }
  // Goes on as far as its messages have moved.
  void progress() {
    while (!done() && messages.done()) {
      if (steps[step].kernel) steps[step].kernel();
      ++step;
      begin_step();
    }
  }

  MpiCommunicator& owner;
  const Call call;
  const Tensor tensor;
  Tensor to;  // of an all_to_all
  std::unique_ptr<OrderedReduction> reduction;
  std::vector<Step> steps;
  size_t step = 0;
  MpiMessages messages;  // of this step
  int64_t record = 0;    // in the flight recorder
};

MpiCommunicator::MpiCommunicator(const MpiJoin& join, FingerprintCheck& others, EventStream& events,
                                 bool ordered)
    : Communicator(join.rank, join.size, events),
      others_(others),
      timeout_(join.timeout),
      ordered_(ordered),
      shared_(std::make_shared<Shared>(MpiCalls(join.api, join.inside))) {
  for (int r = 0; r < join.size; ++r) members_.push_back(r);
  // These do not count as calls of the program, which are numbered from 1.
  machines_ = do_all_gather_object(join.machine, kJoining);
  ranks_per_machine_ = zl::ranks_per_machine(machines_);
  start(join);
  others_.while_waiting([this] { progress(); });
}

// A group has its own tags. MPI needs to know of it only to add.
MpiCommunicator::MpiCommunicator(MpiCommunicator& all, const Split& split)
    : Communicator(all, split),
      others_(all.others_),
      timeout_(all.timeout_),
      ordered_(all.ordered_),
      members_(split.members),
      shared_(all.shared_) {
  for (const int member : members_) machines_.push_back(all.machines_[size_t(member)]);
  ranks_per_machine_ = zl::ranks_per_machine(machines_);
}

std::unique_ptr<Communicator> MpiCommunicator::do_split(const Split& split) {
  (void)do_all_gather_object("", split.call);
  std::unique_ptr<MpiCommunicator> group(new MpiCommunicator(*this, split));
  if (ordered_) return group;
  in_mpi(split.call, [&] {
    shared_->calls.take("MPI_Comm_create_group", [&] {
      return shared_->calls.api.make_group(group->members_.data(), group->size(),
                                           split.group.number, &group->mpi_group_);
    });
  });
  return group;
}

MpiCommunicator::~MpiCommunicator() {
  if (group().number == 0) others_.while_waiting({});
}

void MpiCommunicator::start(const MpiJoin& join) {
  const Clock::time_point began = Clock::now();
  const MpiApi& api = join.api;
  join.inside = "MPI_Init_thread";
  const auto poll = [&] {
    if (others_.failed()) throw CommunicationError("another rank has failed");
    if (timeout_.count() > 0 && Clock::now() - began > timeout_)
      throw CommunicationError("MPI_Init_thread did not return within " +
                               human_time(std::chrono::nanoseconds(timeout_).count()) +
                               "; a slow start needs a larger --timeout");
  };
  in_mpi(kJoining, [&] { start_mpi(api, poll); });
  join.inside = nullptr;
  WireWriter counted;
  counted.put(api.size()).put(api.rank());
  const std::vector<std::string> ranks = do_all_gather_object(counted.take(), kJoining);
  for (int r = 0; r < size(); ++r) {  // all ranks say the same
    WireReader wire(ranks[size_t(r)]);
    const int counts = wire.get<int>(), calls = wire.get<int>();
    require_input(counts == size() && calls == r, "the launcher started ", size(),
                  " ranks, but on rank ", r, " ", name(api.kind), " counts ", counts,
                  counts == 1 ? " rank" : " ranks", " and calls it rank ", calls,
                  counts == 1 ? ", so another MPI's launcher started them" : "",
                  ". Cure: start them with ", mpiruns(api.kind).front(),
                  ", or under Slurm with srun --mpi=pmix or --mpi=pmi2");
  }
  shared_->tags = api.largest_tag() / 2 / kGroups;
}

int64_t MpiCommunicator::reduction_scratch_bytes(int64_t count, Dtype dtype) const {
  return ordered_ ? ordered_scratch(count, rank(), size()) * size_of(dtype) : 0;
}

void MpiCommunicator::require_running() {
  if (shared_->calls.left || others_.failed())
    others_.throw_failure({.kind = Collective::barrier, .name = "reading results"});
}

void MpiCommunicator::finish() {
  Communicator::finish();
  (void)all_gather_object("", "leaving MPI");
}

// Two kinds of calls, numbered apart.
int MpiCommunicator::tag_of(const Call& call) const {
  const int number = int(call.sequence % shared_->tags) * kGroups + call.group.number % kGroups;
  return number * 2 + call.point_to_point();
}

// The first rank to fail throws its own error, the others that of the run.
void MpiCommunicator::fail(const Call& call, const std::string& why) {
  const std::string text = str("rank ", rank(), " in ", describe(call), ": ", why);
  shared_->calls.left = true;
  if (others_.fail(text)) throw CommunicationError(text);
  others_.throw_failure(call);
}

void MpiCommunicator::in_mpi(const Call& call, const std::function<void()>& use) {
  try {
    use();
  } catch (const CommunicationError& error) {
    fail(call, error.what());
  }
}

void MpiCommunicator::check(const std::function<void()>& others_call) {
  try {
    others_call();
  } catch (const CommunicationError&) {
    shared_->calls.left = true;
    throw;
  }
}

std::shared_ptr<MpiCommunicator::Operation> MpiCommunicator::prepare(const Tensor& tensor,
                                                                     const Call& call) {
  Backend& backend = tensor.backend();
  require(backend.holds_data() && !backend.native_stream(Stream::communication), name(call.kind),
          " '", call.name, "': MPI moves the memory of CPUs, and this tensor is on ",
          backend.name());
  return std::make_shared<Operation>(*this, tensor, call);
}

Work MpiCommunicator::issue(const std::shared_ptr<Operation>& operation) {
  Operation* const op = operation.get();
  check([&] {
    op->record = op->call.point_to_point() ? others_.post(op->call, events())
                                           : others_.require_same_call(op->call, events());
  });
  if (!op->call.point_to_point()) all_ranks_came(op->call);
  if (op->call.count == 0) op->steps.clear();
  shared_->in_flight.push_back(op);
  in_mpi(op->call, [&] { op->begin_step(); });
  if (!op->call.point_to_point()) others_.set_state(op->record, CallState::posted);
  return Work([operation] { operation->owner.wait(*operation); });
}

Work MpiCommunicator::reduction(const Tensor& tensor, const Tensor& start, const Call& call) {
  if (!ordered_) {
    require(!start.defined(), name(call.kind), " '", call.name,
            "': a sum that continues from a start needs ordered sums, and here MPI adds");
    return unordered_reduction(tensor, call);
  }
  const auto operation = prepare(tensor, call);
  Operation* const op = operation.get();
  op->reduction = ordered_reduction(tensor, start, call, {rank(), size(), ranks_per_machine_});
  for (int step = 0; step < op->reduction->steps(); ++step)
    op->steps.push_back({[op, step](MpiMessages& to) { op->reduction->exchange(step, to); },
                         [op, step] { op->reduction->add(step); }});
  if (call.kind == Collective::all_reduce)
    op->steps.push_back({[op](MpiMessages& to) { op->reduction->gather_sums(to); }});
  return issue(operation);
}

// MPI adds in place. It leaves a reduce_scatter's sum where the buffer begins.
Work MpiCommunicator::unordered_reduction(const Tensor& tensor, const Call& call) {
  const MpiType type = mpi_type(call);
  const bool all = call.kind == Collective::all_reduce;
  const int64_t count = all ? call.count : call.count / size(), to = all ? 0 : rank() * count;
  require_input(all || count * size_of(call.dtype) <= kMaxMessageBytes, name(call.kind), " '",
                call.name, "': MPI adds shards of up to 1 GiB, and this one has ",
                human_bytes(count * size_of(call.dtype)),
                "; leave sums to zerolab (\"zerolab\": {\"ordered\": true}), or use more ranks");
  const auto operation = prepare(tensor, call);
  Operation* const op = operation.get();
  op->steps.push_back(
      {[=](MpiMessages& mpi) {
         if (all)
           mpi.all_reduce(at(op->tensor, 0), count, type, op->owner.mpi_group_);
         else
           mpi.reduce_scatter(at(op->tensor, 0), count, type, op->owner.mpi_group_);
       },
       [=] {
         Backend& backend = op->tensor.backend();
         char* const sums = at(op->tensor, to);
         if (to > 0) backend.move_bytes(at(op->tensor, 0), sums, count * size_of(op->call.dtype));
         if (op->call.reduction == Reduction::mean)
           backend.ordered_sum(
               {{&sums, 1}, {&sums, 1}, 0, count, op->call.dtype, true, op->owner.size()});
       }});
  return issue(operation);
}

Work MpiCommunicator::do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) {
  return reduction(inout, start, call);
}

Work MpiCommunicator::do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) {
  return reduction(full, start, call);
}

Work MpiCommunicator::do_all_gather(const Tensor& full, const Call& call) {
  const auto operation = prepare(full, call);
  operation->steps.push_back(
      {[op = operation.get(), shard = call.count / size(), this](MpiMessages& to) {
        to.all_gather(at(op->tensor, rank() * shard), at(op->tensor, 0), shard, op->call.dtype);
      }});
  return issue(operation);
}

// A binomial tree: after k rounds 2^k ranks have the values. Ranks count from the root here.
Work MpiCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  const auto operation = prepare(inout, call);
  Operation* const op = operation.get();
  const int place = (rank() + size() - call.peer) % size();
  int has = 1;  // ranks that have the values before this one sends
  while (has <= place) has *= 2;
  const auto rank_at = [this, op](int place) { return (place + op->call.peer) % size(); };
  if (place > 0)
    op->steps.push_back({[=](MpiMessages& from) {
      from.receive(at(op->tensor, 0), op->call.count, op->call.dtype, rank_at(place - has / 2));
    }});
  op->steps.push_back({[=, this](MpiMessages& to) {
    for (int next = has; place + next < size(); next *= 2)
      to.send(at(op->tensor, 0), op->call.count, op->call.dtype, rank_at(place + next));
  }});
  return issue(operation);
}

Work MpiCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  const auto operation = prepare(from, call);
  Operation* const op = operation.get();
  op->to = to;
  const int64_t shard = call.count / size();
  const auto exchange = [=, this](MpiMessages& transport) {
    for (int i = 1; i < size(); ++i) {
      const int next = (rank() + i) % size(), last = (rank() + size() - i) % size();
      transport.receive(at(op->to, last * shard), shard, op->call.dtype, last);
      transport.send(at(op->tensor, next * shard), shard, op->call.dtype, next);
    }
  };
  const auto own = [=, this] {
    op->tensor.backend().move_bytes(at(op->tensor, rank() * shard), at(op->to, rank() * shard),
                                    shard * size_of(op->call.dtype));
  };
  op->steps.push_back({exchange, own});
  return issue(operation);
}

Work MpiCommunicator::do_barrier(const Call& call) {
  check([&] { others_.set_state(others_.require_same_call(call, events()), CallState::done); });
  all_ranks_came(call);
  return {};
}

std::vector<std::string> MpiCommunicator::do_all_gather_object(const std::string& text,
                                                               const Call& call) {
  std::vector<std::string> all;
  check([&] { all = others_.all_gather_object(call, text, events()); });
  return all;
}

// The check of both sides and their messages go on beside each other: if the sides differ, the run
// fails, whatever MPI does with the messages.
Work MpiCommunicator::point_to_point(const Tensor& tensor, const Call& call) {
  const auto operation = prepare(tensor, call);
  operation->steps.push_back({[op = operation.get()](MpiMessages& other) {
    const Call& call = op->call;
    if (call.kind == Collective::send)
      other.send(at(op->tensor, 0), call.count, call.dtype, call.peer);
    else
      other.receive(at(op->tensor, 0), call.count, call.dtype, call.peer);
  }});
  return issue(operation);
}

// All calls of this rank go on.
void MpiCommunicator::progress() {
  for (Operation* op : shared_->in_flight) in_mpi(op->call, [&] { op->progress(); });
}

void MpiCommunicator::wait(Operation& op) {
  if (op.call.point_to_point()) {
    check([&] { others_.wait_for_match(op.record); });
    all_ranks_came(op.call);
  }
  if (shared_->calls.left) others_.throw_failure(op.call);
  if (!op.call.point_to_point()) others_.set_state(op.record, CallState::moving);
  Clock::time_point began = Clock::now(), last = began;
  for (int polls = 1;; ++polls) {
    progress();
    if (op.done()) break;
    if (others_.failed()) fail(op.call, "another rank has failed");
    const Clock::time_point now = Clock::now();
    if (now - last > std::chrono::seconds(1)) began += now - last;  // this process was stopped
    last = now;
    if (timeout_.count() > 0 && now - began > timeout_)
      fail(op.call, "the transfer was not done within " +
                        human_time(std::chrono::nanoseconds(timeout_).count()) +
                        ". If the ranks are only slow, raise --timeout (0 waits forever)");
    rest_after_poll(polls);
  }
  others_.set_state(op.record, CallState::done);
  std::erase(shared_->in_flight, &op);
  op.reduction.reset();
}

// An operation that was not waited for fails the run, unless it has failed already. MPI cannot
// withdraw its messages: a send may be read by the other rank, and collectives have no cancel. So
// its memory is kept until the process ends.
void MpiCommunicator::release(Operation& op) noexcept {
  if (std::erase(shared_->in_flight, &op) > 0) {
    static auto* const kept = new std::vector<Operation::Buffers>;
    kept->push_back({op.tensor, op.to, std::move(op.reduction)});
    shared_->calls.left = true;
  }
  if (op.call.point_to_point()) others_.withdraw(op.record, std::uncaught_exceptions() > 0);
}

}  // namespace zl
