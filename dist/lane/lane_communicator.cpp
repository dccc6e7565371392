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

// Makes the same call of another communicator.
Work make(const Call& call, const Tensor& a, const Tensor& b, Communicator& comm) {
  const CallName name{call.name, Purpose::check};
  switch (call.kind) {
    case Collective::all_reduce: return comm.all_reduce(a, call.reduction, name, b);
    case Collective::reduce_scatter: return comm.reduce_scatter(a, call.reduction, name, b);
    case Collective::all_gather: return comm.all_gather(a, name);
    case Collective::broadcast: return comm.broadcast(a, call.peer, name);
    case Collective::all_to_all: return comm.all_to_all(a, b, name);
    case Collective::barrier: return comm.barrier(name);
    case Collective::send: return comm.send(a, call.peer, name);
    case Collective::receive: return comm.receive(a, call.peer, name);
  }
  return {};
}

}  // namespace

// A call from issue to wait. Belongs to the Work that the rank has, and is destroyed on its thread.
// The lane uses it until `done` is ready.
struct LaneCommunicator::Operation {
  ~Operation() {
    const auto is_done = [&] { return done.wait_for(nanoseconds(0)) == std::future_status::ready; };
    if (done.valid() && (call.point_to_point() || !is_done())) of.drop(*this);
  }

  LaneCommunicator& of;
  const Call call;
  const Tensor a, b;
  const char *phase, *unit;  // in which the rank issued it
  std::future<void> done;    // of a send or receive: that it is posted; valid until the rank waits
  // The lane's. [ns]
  Work work;
  int64_t began = 0, met = 0, moved = 0;
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
    lane_->add([] {}).wait();
}

std::unique_ptr<Communicator> LaneCommunicator::do_split(const Split& split) {
  std::unique_ptr<Communicator> inner;  // it compares the split with that of the other ranks
  get(lane_->add([&] { inner = inner_->split(split.color_of_rank, split.group.label); }));
  return std::unique_ptr<Communicator>(new LaneCommunicator(*this, split, std::move(inner)));
}

void LaneCommunicator::finish() {
  Communicator::finish();
  get(lane_->add([this] { inner_->finish(); }));
}

Work LaneCommunicator::issue(const Call& call, const Tensor& a, const Tensor& b) {
  const auto operation = std::shared_ptr<Operation>(
      new Operation{*this, call, a, b, events().phase(), events().unit()});
  operation->done =
      lane_->add([this, &o = *operation] { carry_out(o, true, !o.call.point_to_point()); });
  return Work([this, operation] { wait(*operation); });
}

void LaneCommunicator::wait(Operation& operation) {
  get(std::move(operation.done));
  if (operation.call.point_to_point()) get(lane_->add([&] { carry_out(operation, false, true); }));
  if (operation.met) all_ranks_came(operation.call, operation.met);
  carried_out(operation.call, operation.began, operation.moved);
}

void LaneCommunicator::drop(Operation& operation) noexcept {
  if (std::uncaught_exceptions() > 0 && !failure_.failed())
    failure_.fail(str("rank ", group().of_run(rank()), " stopped: an exception ended it while ",
                      describe(operation.call), " was in flight"));
  if (operation.call.point_to_point())  // what was posted is withdrawn on the lane
    operation.done = lane_->add([&] { const Work dropped = std::move(operation.work); });
  operation.done.wait();
}

void LaneCommunicator::get(std::future<void> done) try { done.get(); } catch (...) {
  all_.rethrown_ = true;
  throw;
}

void LaneCommunicator::carry_out(Operation& operation, bool begins, bool completes) {
  struct Current {
    Operation*& operation;
    ~Current() { operation = nullptr; }
  } current{all_.current_ = &operation};
  if (begins) {
    EventStream& events = inner_->events();
    if (std::strcmp(events.phase(), operation.phase) != 0) events.set_phase(operation.phase);
    events.set_unit(operation.unit);
    operation.began = now();
    operation.work = make(operation.call, operation.a, operation.b, *inner_);
  }
  if (!completes) return;
  operation.work.wait();
  pass_link(operation);
  operation.moved = now();
}

// One call after another passes the link. Sleeps in slices, so that a failure ends it.
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

std::vector<std::string> LaneCommunicator::do_all_gather_object(const std::string& text,
                                                                const Call& call) {
  std::vector<std::string> all;
  get(lane_->add([&] { all = inner_->all_gather_object(text, call.name); }));
  return all;
}

}  // namespace zl
