#include "stages/predict/clock/step_clock.h"

#include <algorithm>
#include <string_view>

namespace zl {

ClockTimes ClockTimes::operator-(const ClockTimes& o) const {
  return {seconds - o.seconds, compute - o.compute, launches - o.launches,
          communication - o.communication, exposed - o.exposed};
}
ClockTimes ClockTimes::operator+(const ClockTimes& o) const { return *this - o * -1; }
ClockTimes ClockTimes::operator*(double n) const {
  return {n * seconds, n * compute, n * launches, n * communication, n * exposed};
}

StepClock::StepClock(const Machine& machine, const ClockOptions& options)
    : machine_(machine), options_(options) {}

void StepClock::see(const Event& event) {
  if (finished_) return;
  // Calls that meet one after another were issued as one group.
  if (event.kind != EventKind::collective_met) issue_met();
  switch (event.kind) {
    case EventKind::phase: return see_phase(event);
    case EventKind::unit: return see_unit(event);
    case EventKind::kernel: return see_kernel(event);
    case EventKind::move: return see_move(event);
    case EventKind::collective_begin:
    case EventKind::collective_met:
    case EventKind::collective_end: return see_call(event);
    default: return;
  }
}

// ---- steps and micro-batches -------------------------------------------------------------------

void StepClock::see_phase(const Event& event) {
  const std::string_view phase = event.phase;
  if (phase == "report") return finish();
  if (phase == "step") after_step_ = updates_ = true;
  if (phase != "forward") return;
  if (std::exchange(after_step_, false)) begin_step();
  marks_.push_back(now());
}

void StepClock::begin_step() {
  marks_.clear();
  kernels_of_step_.clear();
  kernels_.clear();
  calls_.clear();
}

void StepClock::finish() {
  if (std::exchange(finished_, true)) return;
  issue_met();
  marks_.push_back(now());
}

ClockTimes StepClock::now() const {
  const double t = device_time();
  return {.seconds = t,
          .compute = t - exposed_ - std::max(0.0, waited_ - compute_),
          .launches = launches_,
          .communication = in_flight_.busy_between(0, t),
          .exposed = exposed_ + std::max(0.0, waited_ - compute_)};
}

ClockTimes StepClock::step(int64_t micro_batches) const {
  if (marks_.size() < 2) return {};
  const int64_t made = int64_t(marks_.size()) - 1;
  ClockTimes step = marks_.back() - marks_.front();
  if (micro_batches > made && made >= 2)
    step =
        step + (marks_[size_t(made - 1)] - marks_[size_t(made - 2)]) * double(micro_batches - made);
  return step;
}

std::vector<ClockSpan> StepClock::spans() const {
  if (marks_.empty()) return {};
  const double start = marks_.front().seconds;
  std::vector<ClockSpan> all = kernels_of_step_;
  for (const CallsInFlight::Span& call : in_flight_.spans()) {
    if (call.end <= start) continue;
    ClockSpan span = call_of_number_[size_t(call.number)];
    span.begin = std::max(call.begin, start);
    span.end = call.end;
    all.push_back(std::move(span));
  }
  for (ClockSpan& span : all) span.begin -= start, span.end -= start;
  return all;
}

// ---- lanes -------------------------------------------------------------------------------------

// [s] that a kernel takes which would take `seconds` without calls in flight.
double StepClock::slowed(double begin, double seconds) const {
  const double until = in_flight_.end_of_all(), slow = machine_.contention;
  if (until <= begin || slow <= 1) return seconds;
  const double beside = until - begin;  // in which a call is in flight
  return seconds * slow <= beside ? seconds * slow : beside + seconds - beside / slow;
}

// On a CPU the thread that launches does nothing else meanwhile.
void StepClock::launch() {
  if (machine_.rank.device == DeviceKind::cpu) {
    exposed_ += std::max(0.0, waited_ - compute_);
    launches_ += machine_.rank.launch;
    host_ = compute_ = device_time() + machine_.rank.launch;
  } else {
    host_ += machine_.rank.launch;
  }
}

void StepClock::run(const char* what, const char* unit, double seconds, bool launched) {
  if (launched) launch();
  const double ready = device_time(), begin = std::max(ready, host_);
  exposed_ += std::max(0.0, waited_ - compute_);
  launches_ += begin - ready;
  compute_ = begin + slowed(begin, seconds * options_.slowdown);
  kernels_[what] += compute_ - begin;
  kernels_of_step_.push_back({"compute", what, unit, begin, compute_});
}

void StepClock::see_unit(const Event& event) {
  if (event.what != std::string_view("update") || !std::exchange(updates_, false)) return;
  host_ = std::max(host_, device_time());  // the update needs the norm of all gradients
}

void StepClock::see_kernel(const Event& event) {
  const std::string_view kernel = event.what;
  if (kernel == "transfer") return;  // counted as a move
  if (*event.detail) {               // of a tensor in host memory
    const double share = machine_.host.memory_bandwidth / machine_.ranks_per_node;
    if (share > 0) run(event.what, event.unit, double(event.bytes) / share, false);
    return;
  }
  const KernelWork work{.kernel = kernel,
                        .operations = double(event.count),
                        .bytes = double(event.bytes),
                        .type = options_.type,
                        .ranks = std::min(options_.ranks, machine_.ranks_per_node),
                        .head = options_.head,
                        .rows = options_.rows};
  run(event.what, event.unit, kernel_seconds(machine_.rank, work), true);
}

void StepClock::see_move(const Event& event) {
  const std::string_view move = event.what;
  const double ranks = std::min(options_.ranks, machine_.ranks_per_node);
  const double rate = move == name(Move::disk_read)    ? machine_.host.disk_read / ranks
                      : move == name(Move::disk_write) ? machine_.host.disk_write / ranks
                                                       : machine_.host.link_bandwidth;
  if (rate > 0) run(event.what, event.unit, double(event.bytes) / rate, false);
}

// ---- calls -------------------------------------------------------------------------------------

namespace {

Collective collective_named(std::string_view text) {
  for (int i = 0; i <= int(Collective::receive); ++i)
    if (text == name(Collective(i))) return Collective(i);
  return Collective::barrier;
}

}  // namespace

void StepClock::see_call(const Event& event) {
  if (event.kind == EventKind::collective_begin) {
    const std::string_view group = event.group;
    const int X = options_.ranks_in_group;
    const RankPlaces at = group == "intra"   ? places_of_groups(machine_, options_.ranks, X)
                          : group == "inter" ? places_of(machine_, options_.ranks / X, X)
                                             : places_of(machine_, options_.ranks);
    const Collective kind = collective_named(event.what);
    const double alpha = collective_model(machine_, kind, event.bytes, at).terms.alpha;
    calls_open_.push_back(
        {.name = event.detail,
         .group = event.group,
         .collective = event.what,
         .unit = event.unit,
         .latency = at.ranks > 1 ? alpha : 0,
         .transfer = std::max(0.0, collective_seconds(machine_, kind, event.bytes, at) - alpha),
         .between_nodes = at.nodes > 1});
    return;
  }
  const bool met = event.kind == EventKind::collective_met;
  for (size_t i = 0; i < calls_open_.size(); ++i) {
    const Issued& call = calls_open_[i];
    const bool pending = call.number < 0 && std::ranges::find(met_, i) == met_.end();
    if (call.name != event.detail || call.collective != event.what || call.group != event.group)
      continue;
    if (met) {
      if (!pending) continue;
      met_.push_back(i);
      return;
    }
    waited_ = std::max(waited_, in_flight_.end_of(call.number));
    calls_open_.erase(calls_open_.begin() + long(i));
    return;
  }
}

// The calls of a group are one launch, and share one latency.
void StepClock::issue_met() {
  if (met_.empty()) return;
  launch();
  CallsInFlight::Call all;
  for (const size_t i : met_) {
    const Issued& call = calls_open_[i];
    all.communicator = call.group;
    all.latency = std::max(all.latency, call.latency);
    all.transfer += call.transfer;
    if (call.between_nodes) all.link = CallsInFlight::Link::network;
    calls_[call.collective] += call.transfer;
  }
  calls_[calls_open_[met_.front()].collective] += all.latency;
  const Issued& first = calls_open_[met_.front()];
  call_of_number_.push_back(
      {first.group.empty() ? "calls" : "calls of " + first.group, first.collective, first.unit});
  const int64_t number = in_flight_.issue(all, std::max(host_, device_time()));
  for (const size_t i : met_) calls_open_[i].number = number;
  if (!options_.calls_in_flight) waited_ = std::max(waited_, in_flight_.end_of(number));
  met_.clear();
}

}  // namespace zl
