// Ranks as threads of one process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "dist/communicator.h"

namespace zl {

inline constexpr int kMostRanks = 64;  // of one run: sets of ranks are masks of 64 bits

// How a second thread of a rank takes part in the failure of its run. Any thread may call both.
struct SharedFailure {
  std::function<void(const std::string& why)> fail;  // ends the calls of all ranks
  std::function<bool()> failed;
};

// A thread of a rank, with this name; `run` gets its stop token. Throws CommunicationError that
// says what to do if the system gives no more threads.
std::jthread start_thread(const std::string& name, std::function<void(const std::stop_token&)> run);

// Makes a rank's communicator around that of the threads, `inner`, on the rank's thread. `events`
// is the rank's; those of `inner` are used by no other thread. Both event streams outlive the
// result.
using MakeLane = std::function<std::unique_ptr<Communicator>(
    std::unique_ptr<Communicator> inner, EventStream& events, SharedFailure failure)>;

struct RankOptions {
  // How long a rank waits for the others in one call. 0: forever (gdb, --step).
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // After a failure, how much longer than `timeout` the ranks that are not in a call may take to
  // end before the process prints the report and exits with 4. Without a timeout it never does.
  std::chrono::milliseconds grace = std::chrono::seconds(30);
  // A second thread per rank, its lane, carries out the calls while the rank computes: own_lane()
  // of dist/lane/. Without it a call is complete when it returns.
  MakeLane lane;
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
