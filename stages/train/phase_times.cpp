#include "stages/train/phase_times.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

namespace zl {

void PhaseTimes::see(const Event& event) {
  // The state since the event before lasted until now.
  if (open_ != nullptr) {
    const int64_t passed = event.nanoseconds - last_;
    open_->nanoseconds += passed;
    if (std::ranges::any_of(calls_, &Call::occupies)) open_->communicating += passed;
    if (std::ranges::any_of(calls_, [](const Call& c) { return c.occupies && c.reduces; }))
      open_->reducing += passed;
  }
  last_ = event.nanoseconds;
  if (event.kind == EventKind::phase) open_ = &phases_[event.what];
  see_call(event);
}

// A rank that computes while calls are in flight is in none of them until it waits for one.
void PhaseTimes::see_call(const Event& event) {
  const std::string_view what = event.what;
  if (event.kind == EventKind::kernel || event.kind == EventKind::unit)
    for (Call& call : calls_) call.occupies = false;
  if (event.kind == EventKind::collective_begin)
    calls_.push_back({event.what, event.detail, what == "all_reduce" || what == "reduce_scatter"});
  if (event.kind != EventKind::collective_wait && event.kind != EventKind::collective_end) return;
  const auto call = std::ranges::find_if(calls_, [&](const Call& c) {
    return what == c.kind && std::string_view(event.detail) == c.name &&
           (event.kind == EventKind::collective_end || !c.waits);
  });
  if (call == calls_.end()) return;
  if (event.kind == EventKind::collective_end)
    calls_.erase(call);
  else
    call->occupies = call->waits = true;
}

PhaseTimeMap PhaseTimes::take() {
  open_ = nullptr;
  return std::exchange(phases_, {});
}

StepTimes step_times(const PhaseTimeMap& phases) {
  const auto phase = [&](const char* name) {
    const auto found = phases.find(name);
    return found == phases.end() ? PhaseTime{} : found->second;
  };
  const PhaseTime forward = phase("forward"), backward = phase("backward"), step = phase("step");
  const auto milliseconds = [](int64_t nanoseconds) { return double(nanoseconds) * 1e-6; };
  return {.forward = milliseconds(forward.nanoseconds),
          .backward = milliseconds(backward.nanoseconds),
          .backward_inner = milliseconds(backward.nanoseconds - backward.reducing),
          .backward_allreduce = milliseconds(backward.reducing),
          .step = milliseconds(step.nanoseconds),
          .communication =
              milliseconds(forward.communicating + backward.communicating + step.communicating)};
}

std::string time_line(const StepTimes& t) {
  char line[200];
  std::snprintf(line, sizeof line,
                "time (ms) | fwd: %.2f | bwd: %.2f | bwd_inner: %.2f | bwd_allreduce: %.2f | step: "
                "%.2f | comm: %.2f",
                t.forward, t.backward, t.backward_inner, t.backward_allreduce, t.step,
                t.communication);
  return line;
}

}  // namespace zl
