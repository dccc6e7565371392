// 'zerolab bench step': its settings and its measurements.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct StepOptions : RunOptions {
  std::vector<StageKind> stages = {kStages, kStages + 4};
  std::optional<int64_t> micro_batch;
  int64_t timed = 10, warm_up = 2;  // steps of a row, over all rounds; steps before them per round
  int64_t rounds = 3;               // at most `timed`
  bool profile = false;
};

// `ranks` ranks of one stage, or `ranks` independent runs of one rank at the same time.
struct StepRow {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  bool independent = false;

  std::string out_of_memory{};                // why it did not run; then the rest is unset
  std::vector<std::vector<double>> rounds{};  // [s] of each timed step
  int64_t tokens = 0;                         // per step, over all ranks
  double operations = 0;                      // [FLOP] per step, over all ranks
  std::vector<int64_t> peak{};                // [B] per rank, device and host together
  // Pages that the whole process touches first in a timed step: the maximum over the rounds.
  double page_faults = 0;
  // [B] of the whole process: the maximum over the rounds, and before that round began. 0: unknown.
  int64_t peak_resident = 0, resident_before = 0;

  const char* name() const { return independent ? "independent" : zl::name(stage); }
};

struct StepRows {
  std::vector<StepRow> rows;  // one rank, independent ranks, ddp, the other stages
  double operation_rate = 0;  // [FLOP/s] the peak of a GPU, or of a core for each thread of a rank
};

// Measures every row once per round. Throws Interrupted, and any error of a rank but OutOfMemory.
StepRows measure_steps(const StepOptions& options, const RunSetup& setup);

// The same training on one rank, a thread of this process.
GptTrainingSpec one_rank(GptTrainingSpec spec);

}  // namespace zl::cli
