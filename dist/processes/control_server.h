// The server in rank 0's process at which the ranks of a run, each a process, meet and compare
// their calls.
//
// Rank 0 has a connection within its process, so that the server treats all ranks alike. One thread
// serves all connections. It lets ranks in (dist/processes/bootstrap.h) until all have come. It
// answers when all ranks have come to the same collective, and fails the run when it finds one of
// these:
//   a rank that is missing  it has not come in time, or was started differently
//   calls that differ       when the last rank has come to the call; if ranks do not compare
//                           it, when the records of two have come (with each sign of life)
//   a rank that has died    its connection ends before it has sent `ended`
//   a rank that is silent   for the timeout, or for half of it where others wait: its process is
//                           stopped, or its machine or the network is gone
//   a rank that is late     another one has waited for the timeout; all late ranks are named
//   ranks in a circle       they wait for each other, or for one that makes no more calls
//   a failure               a rank sends it: of one of its calls, or its own
// A rank that sends a failed call may be a victim. So the server asks all ranks for their last
// calls, and looks in them for calls that differ and for ranks that have not come. It waits 300 ms
// for the answers, at most; for ranks that have not connected yet 2 s, at most until the timeout. A
// failure whose cause is known takes the place of one whose cause is not.
#pragma once

#include <thread>

#include "dist/processes/bootstrap.h"

namespace zl {

// Rank 0's connection to the server, which ends when all ranks know how the run ended and have had
// time to read it. `server` is its thread, to be stopped when rank 0 has ended. `timeout` of a
// call, and of a sign of life; 0: none.
std::unique_ptr<Connection> start_control_server(const RankIdentity& self,
                                                 const BootstrapOptions& options,
                                                 std::chrono::milliseconds timeout,
                                                 std::jthread& server);

}  // namespace zl
