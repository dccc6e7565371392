#include "stages/predict/clock/step_clock.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "tensor/error.h"

namespace zl {

// ---- calls in flight ---------------------------------------------------------------------------

static constexpr double kForever = std::numeric_limits<double>::infinity();

// The first call of each queue runs: first its latency, then its transfer, at 1/n of the link's
// bandwidth while n calls transfer on that link.
void CallsInFlight::Queues::advance(double until, const std::function<void(const Span&)>& ended) {
  while (!of.empty() && now < until) {
    int transferring[2] = {};
    for (auto& [communicator, queue] : of) {
      Span& head = queue.front();
      if (head.begin < 0) head.begin = now;
      if (head.call.latency <= 0) ++transferring[int(head.call.link)];
    }
    const auto slowed = [&](const Span& r) { return double(transferring[int(r.call.link)]); };
    double next = until - now;  // [s] until something changes
    for (const auto& [communicator, queue] : of) {
      const Span& r = queue.front();
      next = std::min(next, r.call.latency > 0 ? r.call.latency : r.call.transfer * slowed(r));
    }
    now = next == kForever ? now : now + next;
    for (auto queue = of.begin(); queue != of.end();) {
      Span& r = queue->second.front();
      // What is left after a step that was as long as the rest is rounding.
      const double tiny = 1e-12 * next;
      const bool first = r.call.latency > 0;
      double& left = first ? r.call.latency : r.call.transfer;
      left -= first ? next : next / slowed(r);
      if (left <= tiny) left = 0;
      if (r.call.latency > 0 || r.call.transfer > 0) {
        ++queue;
        continue;
      }
      r.end = now;
      ended(r);
      queue->second.pop_front();
      queue = queue->second.empty() ? of.erase(queue) : std::next(queue);
    }
  }
  if (of.empty() && until != kForever) now = std::max(now, until);
}

int64_t CallsInFlight::issue(Call call, double at) {
  require(at >= queues_.now, "a call is issued at ", at, " s, before ", queues_.now, " s");
  queues_.advance(at, [this](const Span& span) { ended_.push_back(span); });
  queues_.now = at;
  const std::string communicator = call.communicator;
  queues_.of[communicator].push_back({.number = issued_, .call = std::move(call)});
  return issued_++;
}

double CallsInFlight::end_of(int64_t number) const {
  for (auto span = ended_.rbegin(); span != ended_.rend(); ++span)
    if (span->number == number) return span->end;
  const std::vector<Span> rest = later();
  const auto found = std::ranges::find(rest, number, &Span::number);
  return found == rest.end() ? 0 : found->end;
}

double CallsInFlight::end_of_all() const {
  if (queues_.of.empty()) return ended_.empty() ? 0 : ended_.back().end;
  return later().back().end;
}

double CallsInFlight::busy_until(double end) const {
  std::vector<Span> all = spans();
  std::ranges::sort(all, {}, &Span::begin);
  double busy = 0, until = 0;
  for (const Span& span : all) {
    const double from = std::max(span.begin, until), to = std::min(span.end, end);
    if (to > from) busy += to - from;
    until = std::max(until, to);
  }
  return busy;
}

std::vector<CallsInFlight::Span> CallsInFlight::spans() const {
  std::vector<Span> all = ended_;
  std::ranges::copy(later(), std::back_inserter(all));
  return all;
}

std::vector<CallsInFlight::Span> CallsInFlight::later() const {
  std::vector<Span> rest;
  Queues(queues_).advance(kForever, [&](const Span& span) { rest.push_back(span); });
  return rest;
}

// ---- the clock ---------------------------------------------------------------------------------

ClockTimes ClockTimes::plus(const ClockTimes& o, double times) const {
  return {seconds + times * o.seconds, compute + times * o.compute, launches + times * o.launches,
          communication + times * o.communication, exposed + times * o.exposed};
}

void StepClock::see(const Event& event) {
  if (finished_) return;
  // Calls that meet one after another were issued as one group.
  if (event.kind != EventKind::collective_met) issue_met();
  switch (event.kind) {
    case EventKind::phase: return see_phase(event);
    case EventKind::unit:
      if (event.what == std::string_view("update") && std::exchange(updates_, false))
        host_ = std::max(host_, device_time());  // the update needs the norm of all gradients
      return;
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
  if (std::exchange(after_step_, false))
    marks_.clear(), kernels_of_step_.clear(), kernels_.clear(), calls_.clear();
  marks_.push_back(now());
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
          .communication = in_flight_.busy_until(t),
          .exposed = exposed_ + std::max(0.0, waited_ - compute_)};
}

ClockTimes StepClock::step(int64_t micro_batches) const {
  if (marks_.size() < 2) return {};
  const int64_t made = int64_t(marks_.size()) - 1;
  ClockTimes step = marks_.back() - marks_.front();
  if (micro_batches > made && made >= 2)
    step = step.plus(marks_[size_t(made - 1)] - marks_[size_t(made - 2)],
                     double(micro_batches - made));
  return step;
}

std::vector<ClockSpan> StepClock::spans() const {
  if (marks_.empty()) return {};
  const double start = marks_.front().seconds;
  std::vector<ClockSpan> all = kernels_of_step_;
  for (const auto& [number, call, begin, end] : in_flight_.spans())
    if (end > start)
      all.push_back({call.communicator.empty() ? "calls" : "calls of " + call.communicator,
                     call.what, call.unit, std::max(begin, start), end});
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
  host_ += machine_.rank.launch;
  if (machine_.rank.device != DeviceKind::cpu) return;
  exposed_ += std::max(0.0, waited_ - compute_);
  launches_ += machine_.rank.launch;
  host_ = compute_ = device_time() + machine_.rank.launch;
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

void StepClock::see_call(const Event& event) {
  if (event.kind == EventKind::collective_begin) {
    const std::string_view group = event.group;
    const int X = options_.ranks_in_group;
    const RankPlaces at = group == "intra"   ? places_of_groups(machine_, options_.ranks, X)
                          : group == "inter" ? places_of(machine_, options_.ranks / X, X)
                                             : places_of(machine_, options_.ranks);
    int number = 0;
    while (event.what != std::string_view(name(Collective(number))) &&
           number < int(Collective::receive))
      ++number;
    const auto kind = Collective(number);
    const double alpha = collective_model(machine_, kind, event.bytes, at).terms.alpha;
    calls_open_.push_back(
        {.name = event.detail,
         .call = {
             .communicator = event.group,
             .what = event.what,
             .unit = event.unit,
             .latency = at.ranks > 1 ? alpha : 0,
             .transfer = std::max(0.0, collective_seconds(machine_, kind, event.bytes, at) - alpha),
             .link = at.nodes > 1 ? CallsInFlight::Link::network : CallsInFlight::Link::node}});
    return;
  }
  for (size_t i = 0; i < calls_open_.size(); ++i) {
    const auto& [name, number, call] = calls_open_[i];
    if (name != event.detail || call.what != event.what || call.communicator != event.group)
      continue;
    if (event.kind == EventKind::collective_met) {
      if (number >= 0 || std::ranges::find(met_, i) != met_.end()) continue;
      met_.push_back(i);
    } else {
      waited_ = std::max(waited_, in_flight_.end_of(number));
      calls_open_.erase(calls_open_.begin() + long(i));
    }
    return;
  }
}

// The calls of a group are one launch, and share one latency.
void StepClock::issue_met() {
  if (met_.empty()) return;
  launch();
  CallsInFlight::Call all = calls_open_[met_.front()].call;
  all.transfer = 0;
  for (const size_t i : met_) {
    const CallsInFlight::Call& call = calls_open_[i].call;
    all.latency = std::max(all.latency, call.latency);
    all.transfer += call.transfer;
    all.link = std::max(all.link, call.link);
    calls_[call.what] += call.transfer;
  }
  calls_[all.what] += all.latency;
  const int64_t number = in_flight_.issue(all, std::max(host_, device_time()));
  for (const size_t i : met_) calls_open_[i].number = number;
  if (!options_.calls_in_flight) waited_ = std::max(waited_, in_flight_.end_of(number));
  met_.clear();
}

}  // namespace zl
