// How the processes of one run find each other: rank 0 listens, the others connect, and rank 0
// checks that all were started alike.
//
// It leaves nothing behind: no file, and the port is free when all have come. It recognizes other
// programs, other versions of zerolab and ranks of other runs. Both sides prove that they know the
// run's name without sending it, so a program that does not know it cannot end the run. That
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
  std::function<bool()> interrupted;     // polled; true ends the waiting with CommunicationError
};

// What a rank tells rank 0 about itself.
struct RankIdentity {
  std::string run;  // the run's name, equal on all ranks; "" if the launcher gives none
  int rank = 0, size = 1;
  std::string settings;       // equal on all ranks: lines of "key=value"
  std::string host, machine;  // host name, and an id of the machine (dist/trace/host_id.h)
  std::string gpu;            // no two ranks of a machine may use the same; "" for none
};

// On rank 0: the connections to all other ranks, by rank (its own is null), when all have come.
// Each other rank gets `welcome`. Throws CommunicationError with the missing ranks, InputError if
// ranks were started differently; the ranks that came throw the same error.
std::vector<std::unique_ptr<Connection>> accept_ranks(const RankIdentity& self,
                                                      const BootstrapOptions& options,
                                                      const std::string& welcome);

// On the others: the connection to rank 0, when all have come. Throws as accept_ranks(), also if
// rank 0 cannot be found in time.
struct Welcome {
  std::unique_ptr<Connection> connection;
  std::string welcome;
};
Welcome connect_to_rank_0(const RankIdentity& self, const BootstrapOptions& options);

}  // namespace zl
