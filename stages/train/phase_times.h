// The time of each phase of a step and how much of it was communication, read from a rank's events.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensor/events.h"

namespace zl {

struct PhaseTime {
  // [ns] From the phase's event to the next phase's, or to the last event before take().
  int64_t nanoseconds = 0;
  // [ns] Of these inside any collective; a group counts once. A call in flight counts only while
  // the rank waits for it.
  int64_t communicating = 0;
  int64_t reducing = 0;  // [ns] of these inside an all_reduce or a reduce_scatter
};

using PhaseTimeMap = std::map<std::string, PhaseTime>;

class PhaseTimes {
 public:
  // A listener of one rank's stream.
  void see(const Event& event);
  // The times since the last take(), by the phase's name. The current phase ends with the last
  // event, so that time between two steps is not counted.
  PhaseTimeMap take();

 private:
  struct Call {
    const char *kind, *name;
    bool reduces;
    bool occupies = true;  // the rank does nothing else
    bool waits = false;
  };
  void see_call(const Event& event);

  PhaseTimeMap phases_;
  PhaseTime* open_ = nullptr;  // the current phase
  int64_t last_ = 0;           // [ns] of the last event
  std::vector<Call> calls_;    // that have begun and not ended
};

// One step in milliseconds, by the names of DeepSpeed's timers, and `comm`, which is ours: every
// collective of the step.
struct StepTimes {
  double forward = 0, backward = 0;
  // backward = inner + allreduce; the latter also for reduce-scatters.
  double backward_inner = 0, backward_allreduce = 0;
  double step = 0;
  double communication = 0;
};
StepTimes step_times(const PhaseTimeMap& phases);

// "time (ms) | fwd: 9.06 | bwd: 25.61 | bwd_inner: 22.40 | bwd_allreduce: 3.21 | step: 4.10 |
// comm: 5.20"
std::string time_line(const StepTimes& times);

}  // namespace zl
