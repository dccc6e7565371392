// The models and settings that 'zerolab bench step' measures: the one that the flags say, or some
// around it.
#pragma once

#include <string>
#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

constexpr int kStepRanks = 4;  // unless --ranks says otherwise

// One setting that takes several values, all others as the flags say.
struct Sweep {
  std::string setting;  // "n_layer"
  std::vector<int64_t> values;
};

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  std::optional<int64_t> micro_batch;
  int64_t timed = 10, warm_up = 2, rounds = 3;
  std::vector<Sweep> sweeps;
  std::string csv;  // the file; "": none
  bool force = false, profile = false;
};

// One model with its settings.
struct StepPoint {
  std::string setting;  // that was swept to get here; "": none
  int64_t value = 0;
  RunSetup setup;
  // "n_layer=4", and `behind`; "" if nothing was swept.
  std::string label(const std::string& behind = "") const {
    return setting.empty() ? "" : str(setting, "=", value, behind);
  }
};

// "n_layer=1,2,4". Throws InputError with the known settings, or if a value comes twice.
Sweep read_sweep(const std::string& text);

// All points, opened and checked before anything runs. An error names the sweep that led to it.
std::vector<StepPoint> step_points(const StepOptions& options);

}  // namespace zl::cli
