// What is checked before a run starts, so that it does not end in the middle.
#pragma once

#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

// Throws OutOfMemory if one of `stages` needs more than this machine, one of its GPUs or
// --host-memory has, and InputError if nvme_path has no room. The system would otherwise kill the
// run in the middle. The ranks of this machine count together.
void require_memory(const GptTrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages);

}  // namespace zl::cli
