// How the processes of one run find each other: rank 0 listens, the others connect, and rank 0
// checks that all were started alike.
//
// It leaves nothing behind: no file, and the port is free when all have come. It recognizes other
// programs, other versions of zerolab and ranks of other runs, and goes on to the next port. That
// prevents accidents; it is no cryptography.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/processes/socket.h"

namespace zl {

inline constexpr int kPorts = 20;  // rank 0 takes the first free one of this many

struct BootstrapOptions {
  std::string address;                   // of rank 0
  int port = 0;                          // the first
  std::chrono::milliseconds timeout{0};  // until all have come; 0: none
  std::function<bool()> interrupted;     // polled while ranks wait for each other
};

// What a rank tells rank 0 about itself.
struct RankIdentity {
  std::string run;  // the run's name, equal on all ranks; "" if the launcher gives none
  int rank = 0, size = 1;
  std::string settings;       // equal on all ranks: lines of "key=value"
  std::string host, machine;  // host name, and an id of the machine (dist/trace/host_id.h)
  std::string gpu;            // no two ranks of a machine may use the same; "" for none
};

using Connections = std::vector<std::unique_ptr<Connection>>;  // by rank

// Both return when all ranks have come. If ranks were started differently (settings, number of
// ranks, two of one number, two on one GPU), both throw InputError; if one has not come in time,
// has died or is interrupted, CommunicationError. All ranks that rank 0 has let in throw the same
// text; if it is rank 0 that has died or gives no sign of life, the others say that. After a death
// rank 0 waits 2 s, at most until the timeout, so that the others come and hear of it.

// On rank 0: listens, and returns the connections of the others. Throws CommunicationError if no
// port is free.
Connections let_ranks_in(const RankIdentity& self, const BootstrapOptions& options);
// On the others: the connection to rank 0, which goes on to the control server. Throws
// CommunicationError, which says what was found at the ports, if rank 0 is not there in time.
std::unique_ptr<Connection> find_rank_0(const RankIdentity& self, const BootstrapOptions& options);

}  // namespace zl
