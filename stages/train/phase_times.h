// What DeepSpeed's key wall_clock_breakdown reports: the time of each phase of a step, read from a
// rank's events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/events.h"

namespace zl {

// One step in milliseconds, by the names of DeepSpeed's timers, and `comm`, which is ours: every
// collective of the step.
struct StepTimes {
  double forward = 0, step = 0, communication = 0;
  // allreduce: also reduce-scatters. inner: the rest of backward.
  double backward_inner = 0, backward_allreduce = 0;
  double backward() const { return backward_inner + backward_allreduce; }
};

class PhaseTimes {
 public:
  // A listener of one rank's stream.
  void see(const Event& event);
  // The times since the last take(). A phase lasts from its event to the next phase's; the current
  // one ends with the last event, so that time between two steps is not counted. Time inside a
  // group of collectives counts once. A call in flight counts only while the rank waits for it.
  StepTimes take();

 private:
  StepTimes times_;
  int64_t last_ = 0;         // [ns] of the last event
  std::string_view phase_;   // the current one; the events' stream owns the text of both
  std::string_view within_;  // the kind of the call that the rank began or waits for, and is in
};

// "time (ms) | fwd: 9.06 | bwd: 25.61 | bwd_inner: 22.40 | bwd_allreduce: 3.21 | step: 4.10 |
// comm: 5.20"
std::string time_line(const StepTimes& times);

}  // namespace zl
