// The time of each kernel inside training steps, where caches and memory are as in a run, and these
// times as the points of a machine's description.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stages/predict/clock/machine.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct StepCount {
  int64_t timed = 5, warm_up = 2;
  int64_t all() const { return timed + warm_up; }
};

// Of rank 0; medians over the timed steps.
struct TimedStep {
  struct Kernel {
    std::string name;  // as its event is called
    double operations = 0, bytes = 0, seconds = 0;
  };
  std::vector<Kernel> kernels;  // in the order of the step
};

// Trains with zero3, which has the kernels of the other stages too, on the setup's ranks, which run
// the same kernels at the same time. On a CPU a kernel's time is that in which its thread had a
// core, so other programs hardly change it. `begin_step` is called before each step. Throws
// Interrupted, and any error of a rank.
TimedStep time_kernels(const RunSetup& setup, const StepCount& count,
                       const std::function<void()>& begin_step);

// [s] of a step with ddp whose kernels are not timed: the lower quartile, because the steps are
// short, and other programs can only make them longer.
double time_step(const RunSetup& setup, const StepCount& count,
                 const std::function<void()>& begin_step);

// Of one precision and number of ranks.
class KernelPoints {
 public:
  // `head`, `rows`: of the model and its micro-batch, as in KernelWork.
  void add(const TimedStep& step, int head, int rows);
  // At most 12 points of each kernel, without those that the others say.
  std::vector<KernelTimes> times(Dtype type, int ranks) const;

 private:
  struct Key {
    std::string kernel;
    int shape;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<KernelTimes::Point>> points_;
};

}  // namespace zl::cli
