// 'zerolab bench step': its settings and its measurements.
#pragma once

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  int64_t micro_batch = 0;          // 0: of the settings
  int64_t timed = 10, warm_up = 2;  // steps of a row, over all rounds; steps before them per round
  int64_t rounds = 3;               // at most `timed`
  bool profile = false;
};

// "results" as JSON text: one rank; `ranks` independent runs of one rank at the same time; ddp, the
// other stages. Measures every row once per round, and adds the device's best `peak` [FLOP/s], of a
// GPU or of a core for each thread of a rank. Throws Interrupted, and any error of a rank but
// OutOfMemory.
std::string measure_rows(const StepOptions& options, const RunSetup& setup, double& peak);

// JSON text: the time in each kernel and outside of all kernels: steps of ddp on one rank, which
// communicates nothing. `peak`: [FLOP/s].
std::string measure_profile(const StepOptions& options, const RunSetup& setup, double peak);

}  // namespace zl::cli
