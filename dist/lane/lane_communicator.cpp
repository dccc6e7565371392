#include "dist/lane/lane_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace {

using std::chrono::nanoseconds;

int64_t now() { return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// [B] that a rank sends over its link. What it receives takes as long as the peer's send.
double sent_bytes(const Call& call, int ranks) {
  const Collective kind = call.kind == Collective::receive ? Collective::send : call.kind;
  return double(sent_bytes_times_n(kind, call.count * size_of(call.dtype), ranks)) / ranks;
}

}  // namespace

// A call from issue to wait. Belongs to the Work that the rank has, and is destroyed on its thread.
// The lane uses it until its task is done.
struct LaneCommunicator::Operation {
  Operation(LaneCommunicator& of, const Call& call, std::function<Work()> inner_call)
      : of(of),
        lane(of.lane_),
        call(call),
        phase(of.events().phase()),
        unit(of.events().unit()),
        inner_call(std::move(inner_call)),
        grouped(of.in_group_ && !call.point_to_point()),
        deferred(call.point_to_point() || grouped) {}
  Operation(const Operation&) = delete;
  ~Operation() {
    if (!waited && (deferred || !lane->is_done(task))) of.drop(*this);
  }

  LaneCommunicator& of;
  const std::shared_ptr<Lane> lane;
  const Call call;
  const char *phase, *unit;                // in which the rank issued it
  const std::function<Work()> inner_call;  // holds the tensors
  const bool grouped;                      // the lane completes it at the end of the group
  bool deferred;                           // the lane has no task yet that completes it; the rank's
  bool waited = false;                     // by the rank
  int64_t task = 0;                        // its last one; 0: none
  // The lane's, until the task is done. [ns]
  Work work;
  int64_t began = 0, met = 0, moved = 0;
  std::exception_ptr error;
};

LaneCommunicator::LaneCommunicator(std::unique_ptr<Communicator> inner, EventStream& events,
                                   const Link& link, LaneFailure failure)
    : Communicator(inner->rank(), inner->size(), events),
      all_(*this),
      inner_(std::move(inner)),
      link_(link),
      failure_(std::move(failure)),
      lane_(std::make_shared<Lane>(rank())) {
  require(inner_->reduction_scratch_bytes(int64_t(1) << 20, Dtype::f32) == 0,
          "a lane cannot carry out reductions that need scratch memory, because only the rank's "
          "thread may allocate; use this engine without a lane");
  inner_->events().listen([this](const Event& event) {
    if (event.kind == EventKind::collective_met && current_) current_->met = event.nanoseconds;
  });
}

LaneCommunicator::LaneCommunicator(LaneCommunicator& all, const Split& split,
                                   std::unique_ptr<Communicator> inner)
    : Communicator(all, split),
      all_(all),
      inner_(std::move(inner)),
      link_(all.link_),
      failure_(all.failure_),
      lane_(all.lane_) {}

LaneCommunicator::~LaneCommunicator() {
  if (&all_ == this)
    lane_->close();
  else
    lane_->join(lane_->add([] {}));
}

std::unique_ptr<Communicator> LaneCommunicator::do_split(const Split& split) {
  std::unique_ptr<Communicator> inner;  // it compares the split with that of the other ranks
  run([&] { inner = inner_->split(split.color_of_rank, split.group.label); });
  return std::unique_ptr<Communicator>(new LaneCommunicator(*this, split, std::move(inner)));
}

void LaneCommunicator::compare_calls_only_on_timeout() {
  run([this] { inner_->compare_calls_only_on_timeout(); });
}

void LaneCommunicator::begin_group() {
  in_group_ = true;
  lane_->add([this] { inner_->begin_group(); });
}

void LaneCommunicator::end_group() {
  in_group_ = false;
  const std::vector<Operation*> group = std::exchange(group_, {});
  const int64_t task = lane_->add([this, group] { complete(group); });
  for (Operation* operation : group) {
    operation->task = task;
    operation->deferred = false;
  }
}

void LaneCommunicator::finish() {
  Communicator::finish();
  run([this] { inner_->finish(); });
}

Work LaneCommunicator::issue(const Call& call, std::function<Work()> inner_call) {
  const auto operation = std::make_shared<Operation>(*this, call, std::move(inner_call));
  operation->task = lane_->add([this, &o = *operation, completes = !operation->deferred] {
    begin(o);
    if (completes) complete(o);
  });
  if (operation->grouped) group_.push_back(operation.get());
  return Work([this, operation] { wait(*operation); });
}

void LaneCommunicator::wait(Operation& operation) {
  require(!operation.grouped || !operation.deferred, describe(operation.call),
          " is waited for before its group has ended");
  if (operation.deferred) operation.task = lane_->add([this, &operation] { complete(operation); });
  lane_->join(operation.task);
  operation.waited = true;
  if (operation.error) {
    all_.rethrown_ = true;
    std::rethrow_exception(operation.error);
  }
  if (operation.met) all_ranks_came(operation.call, operation.met);
  carried_out(operation.call, operation.began, operation.moved);
}

void LaneCommunicator::drop(Operation& operation) noexcept {
  if (std::uncaught_exceptions() > 0 && !failure_.failed())
    failure_.fail(str("rank ", group().of_run(rank()), " stopped: an exception ended it while ",
                      describe(operation.call), " was in flight"));
  std::erase(group_, &operation);
  if (operation.deferred)  // what was posted is withdrawn on the lane
    operation.task = lane_->add([&operation] { const Work dropped = std::move(operation.work); });
  lane_->join(operation.task);
}

void LaneCommunicator::run(const std::function<void()>& task) {
  std::exception_ptr error;
  lane_->join(lane_->add([&] {
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
  }));
  if (!error) return;
  all_.rethrown_ = true;
  std::rethrow_exception(error);
}

void LaneCommunicator::label_events(const Operation& operation) {
  EventStream& events = inner_->events();
  if (std::strcmp(events.phase(), operation.phase) != 0) events.set_phase(operation.phase);
  events.set_unit(operation.unit);
}

void LaneCommunicator::begin(Operation& operation) {
  all_.current_ = &operation;
  operation.began = now();
  try {
    label_events(operation);
    operation.work = operation.inner_call();
  } catch (...) {
    operation.error = std::current_exception();
  }
  all_.current_ = nullptr;
}

void LaneCommunicator::complete(Operation& operation) {
  if (operation.error) return;
  all_.current_ = &operation;
  try {
    operation.work.wait();
    pass_link(operation);
    operation.moved = now();
  } catch (...) {
    operation.error = std::current_exception();
  }
  all_.current_ = nullptr;
}

void LaneCommunicator::complete(const std::vector<Operation*>& group) {
  try {
    inner_->end_group();
  } catch (...) {
    for (Operation* operation : group)
      if (!operation->error) operation->error = std::current_exception();
  }
  for (Operation* operation : group) complete(*operation);
}

// One call after another passes the link, so the bytes of a group add up. Sleeps in slices, so that
// a failure ends it.
void LaneCommunicator::pass_link(const Operation& operation) {
  if (!link_.simulated()) return;
  constexpr double longest = 1e9;  // [s], so that nanoseconds fit
  const auto in_nanoseconds = [=](double s) { return int64_t(std::min(s, longest) * 1e9); };
  const double sending =
      link_.bandwidth > 0 ? sent_bytes(operation.call, size()) / link_.bandwidth : 0;
  const int64_t met = operation.met ? operation.met : operation.began;
  int64_t& free_at = all_.link_free_at_;
  free_at = std::max(met, free_at) + in_nanoseconds(sending);
  const std::chrono::steady_clock::time_point until(
      nanoseconds(free_at + in_nanoseconds(link_.latency)));
  while (std::chrono::steady_clock::now() < until && !failure_.failed())
    std::this_thread::sleep_until(
        std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(50)));
}

Work LaneCommunicator::do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) {
  return issue(call, [=, this] {
    return inner_->all_reduce(inout, call.reduction, {call.name, Purpose::check}, start);
  });
}

Work LaneCommunicator::do_reduce_scatter(const Tensor& full, const Tensor& start,
                                         const Call& call) {
  return issue(call, [=, this] {
    return inner_->reduce_scatter(full, call.reduction, {call.name, Purpose::check}, start);
  });
}

Work LaneCommunicator::do_all_gather(const Tensor& full, const Call& call) {
  return issue(call, [=, this] { return inner_->all_gather(full, {call.name, Purpose::check}); });
}

Work LaneCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  return issue(call, [=, this] {
    return inner_->broadcast(inout, call.peer, {call.name, Purpose::check});
  });
}

Work LaneCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  return issue(call, [=, this] {
    return inner_->all_to_all(from, to, {call.name, Purpose::check});
  });
}

Work LaneCommunicator::do_barrier(const Call& call) {
  return issue(call, [=, this] { return inner_->barrier({call.name, Purpose::check}); });
}

Work LaneCommunicator::do_send(const Tensor& from, const Call& call) {
  return issue(call, [=, this] {
    return inner_->send(from, call.peer, {call.name, Purpose::check});
  });
}

Work LaneCommunicator::do_receive(const Tensor& to, const Call& call) {
  return issue(call, [=, this] {
    return inner_->receive(to, call.peer, {call.name, Purpose::check});
  });
}

std::vector<std::string> LaneCommunicator::do_all_gather_object(const std::string& text,
                                                                const Call& call) {
  std::vector<std::string> all;
  run([&] { all = inner_->all_gather_object(text, call.name); });
  return all;
}

}  // namespace zl
