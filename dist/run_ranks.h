// Ranks as threads of one process.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "dist/communicator.h"

namespace zl {

inline constexpr int kMostRanks = 64;  // of one run: sets of ranks are masks of 64 bits

// A link that each rank sends over, simulated: a call is done no earlier than latency + sent bytes
// / bandwidth after all ranks have come to it and the calls before it have been sent.
struct Link {
  double bandwidth = 0;  // [B/s] of each rank; 0: no limit
  double latency = 0;    // [s] of each call
  bool simulated() const { return bandwidth > 0 || latency > 0; }
};

struct RankOptions {
  // How long a rank waits for the others in one call. 0: forever (gdb, --step).
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // After a failure, how much longer than `timeout` the ranks that are not in a call may take to
  // end before the process prints the report and exits with 4. Without a timeout it never does.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
  int64_t event_capacity = 4096;
  // A second thread per rank, its lane, carries out the calls while the rank computes (dist/lane/).
  // Without it a call is complete when it returns.
  bool lane = false;
  Link link;  // needs the lane
};

// Runs `body` once per rank, each on its own thread named "rank r", and returns when all have
// ended. If ranks fail, rethrows the error that came first; errors that only repeat another rank's
// failure come last. Ranks that wait for one that failed, ended early, called something else or
// does not come within the timeout throw CommunicationError instead of hanging; so does a rank that
// drops a Work. At most kMostRanks ranks.
void run_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options = {});

// Another engine for run_ranks(): one process of several (dist/processes/process_ranks.h) runs
// `body` for its own rank only.
using RunRanks = std::function<void(int size, const std::function<void(Communicator&)>& body,
                                    RankOptions options)>;

// The report of the last failed run on this thread: the cause, and each rank's last calls, for
// people. Empty after success.
std::string last_failure_report();
void set_last_failure_report(std::string report);

}  // namespace zl
