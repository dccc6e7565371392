// Ranks as threads of one process.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "dist/communicator.h"

namespace zl {

struct RankOptions {
  // How long a rank waits for the others in one call. 0: for ever (gdb, --step).
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // After a failure, how much longer than `timeout` the ranks that are not in a call may take to
  // end before the process prints the report and exits with 4. Without a timeout it never does.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
  int64_t event_capacity = 4096;
};

// Runs `body` once per rank, each on its own thread named "rank r", and returns when all have
// ended. If ranks fail, rethrows the error that came first; errors that only repeat another rank's
// failure come last. Ranks that wait for one that failed, ended early, called something else or
// does not come within the timeout throw CommunicationError instead of hanging. At most 64 ranks.
void run_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options = {});

// As run_ranks(): who makes the ranks, and where. In one of several processes, `body` runs for its
// own rank alone.
using RunRanks = std::function<void(int size, const std::function<void(Communicator&)>& body,
                                    RankOptions options)>;

// The report of the last run_ranks failure on this thread: why, and each rank's last calls, for
// people. Empty after success.
std::string last_failure_report();

}  // namespace zl
