// What is checked before a run starts, so that it does not end in the middle.
#pragma once

#include <optional>
#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

// Both throw OutOfMemory if a stage needs more than this machine, one of its GPUs or --host-memory
// has, and InputError if nvme_path has no room. The system would otherwise kill the run in the
// middle. The ranks of this machine count together.

// Of each of these stages, by dry runs.
void require_memory(const GptTrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages);
// Of the setup's stage: by closed formulas, which know neither activations nor workspace; or with
// `dry_run` by one, which it returns.
std::optional<RankReport> require_memory(const RunSetup& setup, bool dry_run);

}  // namespace zl::cli
