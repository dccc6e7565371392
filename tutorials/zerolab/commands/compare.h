// What the two forms of compare share: one number of ranks, and several in reproducible mode.
#pragma once

#include <string>
#include <vector>

#include "stages/train/comparison.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

struct CompareOptions : RunOptions {
  std::string baseline;
  std::vector<StageKind> stages;       // of --stages; then what runs
  std::vector<const Preset*> presets;  // of --as
};

// compare_stages() with progress on stderr.
Comparison run_stages(const CompareOptions& options, const RunSetup& setup,
                      TrainingCallbacks callbacks = {});

// compare --reproducible --ranks 1,2,3: prints one row per number of ranks, with a hash of each
// stage's losses, norms and weights. Returns the exit code. Throws InputError.
int compare_ranks(CompareOptions options);

}  // namespace zl::cli
