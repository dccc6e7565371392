// One rank of several processes, with NCCL moving its data.
#pragma once

#include <functional>
#include <string>

#include "dist/nccl/nccl_ranks.h"
#include "dist/processes/launch_environment.h"

namespace zl {

struct ProcessOptions {
  std::string settings;  // equal on all ranks: lines of "key=value"
  std::string gpu;  // PCI address of the rank's GPU, which no other rank may use; "" on the CPU
  std::function<bool()> interrupted;  // polled while the ranks connect
};

// Runs `body` as the rank that a launcher made of this process, and returns when all ranks have
// ended. Throws the rank's own error, or CommunicationError for the failure of another rank or of
// the communication. If one rank throws OutOfMemory, all do. After a failure a rank ends within
// `options.timeout` and the time of its own work; if that takes another `timeout` and
// `options.grace`, the process exits with code 4, as run_ranks() says. The end of the launcher (its
// parent process) is a failure. Throws InputError if NCCL is not built in, or if the processes were
// started differently. At most kMostRanks ranks.
void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const NcclOptions& nccl,
                      const ProcessOptions& process);

}  // namespace zl
