// What is checked before a run starts, so that it does not end in the middle.
#pragma once

#include <vector>

#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

// By a dry run of each of these stages. Throws OutOfMemory if one needs more than this machine or
// one of its GPUs has, and InputError if nvme_path has no room: the system would otherwise kill the
// run in the middle. The ranks of this machine count together. Returns what rank 0 needs in the
// last stage. Limits of --device-memory and --host-memory are left to the run, which names the
// unit.
RankReport require_memory(const TrainingSpec& spec, const RunSetup& setup,
                          const std::vector<StageKind>& stages);

// Throws OutOfMemory if a rank needs more host memory than --host-memory; with that of a save,
// which may begin long after the start.
void require_host_limit(const TrainingSpec& spec, const RankReport& dry);

}  // namespace zl::cli
