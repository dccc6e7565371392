#include "stages/train/phase_times.h"

#include <cstdio>
#include <utility>

namespace zl {

// What has passed since the event before belongs to a call if that event began or awaited it, or if
// this one ends a part of it. A rank that computes while calls are in flight is in none of them.
void PhaseTimes::see(const Event& event) {
  using enum EventKind;
  const bool ends_part = event.kind == collective_met || event.kind == collective_moved ||
                         event.kind == collective_end;
  const std::string_view call = ends_part ? event.what : within_;
  const bool reduces = call == "all_reduce" || call == "reduce_scatter";
  double* const part = phase_ == "forward"    ? &times_.forward
                       : phase_ == "step"     ? &times_.step
                       : phase_ != "backward" ? nullptr
                       : reduces              ? &times_.backward_allreduce
                                              : &times_.backward_inner;
  const double passed = double(event.nanoseconds - last_) / 1e6;
  if (part) *part += passed;
  if (part && !call.empty()) times_.communication += passed;
  last_ = event.nanoseconds;
  if (event.kind == EventKind::phase) phase_ = event.what;
  if (event.kind == collective_begin || event.kind == collective_wait)
    within_ = event.what;
  else if (event.kind == collective_end || event.kind == kernel || event.kind == unit)
    within_ = {};
}

StepTimes PhaseTimes::take() {
  phase_ = {};
  return std::exchange(times_, {});
}

std::string time_line(const StepTimes& t) {
  char line[200];
  std::snprintf(line, sizeof line,
                "time (ms) | fwd: %.2f | bwd: %.2f | bwd_inner: %.2f | bwd_allreduce: %.2f | step: "
                "%.2f | comm: %.2f",
                t.forward, t.backward(), t.backward_inner, t.backward_allreduce, t.step,
                t.communication);
  return line;
}

}  // namespace zl
