// How the processes of one run find each other: rank 0 listens, the others come, and all are
// checked.
//
// Nothing is left behind: no file, and the port is free as soon as all have come. Ranks of another
// run, programs that are none of ours, and ranks that were started with other settings are told
// apart.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "dist/processes/socket.h"

namespace zl {

inline constexpr int kPorts = 20;  // rank 0 takes the first of so many that is free

struct Rendezvous {
  std::string address;                   // of rank 0
  int port = 0;                          // the first
  std::chrono::milliseconds timeout{0};  // until all have come; 0: none
  std::function<bool()>
      interrupted;  // asked now and then; ends the waiting with CommunicationError
};

// What a rank says of itself.
struct Newcomer {
  std::string run;  // identifies the run; "" fits only itself
  int rank = 0, size = 1;
  std::string settings;  // what all ranks must have alike: lines of "key=value", each with its end
  std::string host, machine;  // name, and what tells machines of one name apart
  std::string gpu;            // no two ranks of a machine may name the same; "" for none
};

// On rank 0: all connections by rank (its own is not open), when all have come. Each other rank
// gets `welcome`. Throws CommunicationError with the ranks that are missing, InputError if ranks do
// not fit; those that came get the same error.
std::vector<Connection> receive_ranks(const Newcomer& self, const Rendezvous& where,
                                      const std::string& welcome);

// On the others: the connection to rank 0, when all have come. Throws as receive_ranks(), also if
// rank 0 cannot be found in time.
struct Welcome {
  Connection connection;
  std::string welcome;
};
Welcome find_rank_0(const Newcomer& self, const Rendezvous& where);

}  // namespace zl
