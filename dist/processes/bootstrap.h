// How the processes of one run find each other: rank 0 listens, the others connect, and rank 0 lets
// those in that were started as it was.
//
// It leaves nothing behind: no file, and the port is free when all have come. It recognizes other
// programs, other versions of zerolab and ranks of other runs, and goes on to the next port. That
// prevents accidents; it is no cryptography.
#pragma once

#include <chrono>
#include <functional>
#include <map>
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

// On rank 0: listens until it is destroyed.
class Lobby {
 public:
  // Throws CommunicationError if no port is free.
  Lobby(const RankIdentity& rank_0, const BootstrapOptions& options);

  // Lets ranks in that have come, each by a call of `let_in`, which sends `alive`, and disconnects
  // other programs. A rank that was started differently (settings, number of ranks, two of one
  // number, two on one GPU) ends the run, because no other can come in its place: returns why, else
  // "".
  using LetIn = std::function<void(int rank, std::unique_ptr<Connection> connection)>;
  std::string look(const LetIn& let_in);
  bool all_have_come() const { return int(came_.size()) == came_.at(0).size; }
  // Why the run fails if the ranks of this mask have not come in time.
  std::string missing_text(uint64_t missing) const;

 private:
  std::string admit(std::unique_ptr<Connection>& stranger, const Message& hello,
                    const LetIn& let_in);
  std::string problem_of(const RankIdentity& one) const;

  const BootstrapOptions options_;
  std::map<int, RankIdentity> came_;
  Socket listener_;
  int port_;
  std::vector<std::unique_ptr<Connection>> strangers_;  // that have not said yet who they are
  bool other_version_ = false;
};

// On the other ranks: the connection to rank 0, which has let this rank in. Throws
// CommunicationError, which says what was found at the ports, if rank 0 is not there in time, and
// InputError if this rank was started differently.
std::unique_ptr<Connection> find_rank_0(const RankIdentity& self, const BootstrapOptions& options);

}  // namespace zl
