// One rank of several processes, whose data NCCL moves.
#pragma once

#include <functional>
#include <string>

#include "dist/nccl/nccl_ranks.h"
#include "dist/processes/launch_environment.h"

namespace zl {

struct ProcessOptions {
  std::string settings;  // what all ranks must be started with alike, "key=value" in lines
  std::string
      gpu;  // PCI address of the rank's GPU: no two ranks of a machine may share one; "" on the CPU
  std::function<bool()> interrupted;  // asked while the ranks come together
};

// Runs `body` as the rank that a launcher made of this process, and returns when all ranks have
// ended. Throws the rank's own error, or CommunicationError for what another rank or the
// communication failed with; an OutOfMemory of one is thrown by all. Nobody outlives the failure of
// another by more than `options.timeout` and its own work, for which it has as much again and
// `options.grace`: then the process exits with code 4, as run_ranks() says. Throws InputError if
// NCCL is not built in, or if the processes were not started alike. At most 64 ranks.
void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const NcclOptions& nccl,
                      const ProcessOptions& process);

}  // namespace zl
