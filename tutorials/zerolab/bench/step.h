// 'zerolab bench step': its settings and its measurements. These are templates, defined for
// nlohmann::ordered_json, so that the JSON library stays out of headers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct StepOptions;

// One setting with several values; all other settings are as the flags say.
struct Sweep {
  std::string setting;  // "n_layer"
  void (*set)(StepOptions& options, int64_t value);
  std::vector<int64_t> values;
};

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  std::optional<int64_t> micro_batch;
  int64_t timed = 10, warm_up = 2;  // steps of a row, over all rounds; steps before them per round
  int64_t rounds = 3;               // at most `timed`
  std::vector<Sweep> sweeps;
  std::string csv;  // the file; "": none
  bool force = false, profile = false;
};

// One model with its settings.
struct StepPoint {
  std::string setting;  // the swept setting; "": none
  int64_t value = 0;
  RunSetup setup;
  std::string label() const { return setting.empty() ? "" : str(setting, "=", value, ", "); }
};

// Measures every row once per round. Returns the keys operations_per_second (the peak of a
// place: a GPU, or a core for each thread of a rank) and results. Rows of a point: one rank,
// independent ranks, ddp, the other stages. A row that does not fit has the reason instead of
// numbers. Throws Interrupted, and any other error of a rank.
template <class Json>
Json measure_steps(const StepOptions& options, const std::vector<StepPoint>& points);

// The time in each kernel and outside of all kernels: options.warm_up + options.timed steps of ddp
// on one rank, which communicates nothing.
template <class Json>
Json profile_kernels(const StepPoint& point, const StepOptions& options);

// The same training on one rank, a thread of this process.
GptTrainingSpec one_rank(GptTrainingSpec spec);

}  // namespace zl::cli
