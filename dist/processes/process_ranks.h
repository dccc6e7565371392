// One rank of several processes, which find each other, compare their calls and end together: what
// run_ranks() is for threads. A transport moves their data (dist/nccl/nccl_transport.h,
// dist/mpi/mpi_transport.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/processes/control_client.h"
#include "dist/processes/launch_environment.h"
#include "dist/run_ranks.h"

namespace zl {

// Makes the communicator of the rank.
struct ProcessTransport {
  // Its result is destroyed on the same thread, before `others` and `events`.
  std::function<std::unique_ptr<Communicator>(ControlClient& others, EventStream& events)> join;
  // The function of the library that a rank is in, for the report if it hangs there; null: none, or
  // not known.
  std::function<const char*()> inside = [] { return nullptr; };
  // Whether such a function returns when the run has failed, since the rank's thread polls in it.
  // Else the process exits with code 4, a second after the failure is known.
  bool returns = true;
};

// Runs `body` as the rank that a launcher made of this process, on the caller's thread, and returns
// when all ranks have ended. Throws the rank's own error, or CommunicationError for the failure of
// another rank or of the communication. If one rank throws OutOfMemory, all do. After a failure a
// rank ends within `options.timeout` and the time of its work; if that takes another `timeout` and
// `options.grace`, the process exits with code 4, as run_ranks() says. The end of the launcher (its
// parent process) is a failure. Throws InputError if the processes were started differently. At
// most kMostRanks ranks.
void run_process_rank(const LaunchedRank& place, const std::function<void(Communicator&)>& body,
                      const RankOptions& options, const ProcessTransport& transport,
                      const ProcessOptions& process);

}  // namespace zl
