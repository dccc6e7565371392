// Which rank of several processes this one is, if a launcher started it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dist/processes/process_ranks.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

// None: this process runs all ranks itself. Prints what there is to note on stderr. Throws
// InputError if the launcher's variables contradict each other or the flags.
std::optional<LaunchedRank> launched_rank(const RunOptions& options);

// Rank 0 speaks and writes for all; the others do the same in silence.
inline bool is_first(const std::optional<LaunchedRank>& process) {
  return !process || process->rank == 0;
}
void hush(RunOptions& options);

// A runner for ranks that are processes. All must make the same runs in the same order; each run
// finds its ranks anew.
RunRanks run_as_process(const LaunchedRank& place, const NcclOptions& nccl,
                        const ProcessOptions& process);

}  // namespace zl::cli
