// How the processes of one run find each other: rank 0 listens, the others connect, and rank 0
// checks that all were started alike.
//
// It leaves nothing behind: no file, and the port is free when all have come. It recognizes other
// programs, other versions of zerolab and ranks of other runs. That prevents accidents; it is no
// cryptography.
#pragma once

#include <chrono>
#include <functional>
#include <list>
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
  std::function<bool()> interrupted;     // polled while a rank looks for rank 0
};

// What a rank tells rank 0 about itself.
struct RankIdentity {
  std::string run;  // the run's name, equal on all ranks; "" if the launcher gives none
  int rank = 0, size = 1;
  std::string settings;       // equal on all ranks: lines of "key=value"
  std::string host, machine;  // host name, and an id of the machine (dist/trace/host_id.h)
  std::string gpu;            // no two ranks of a machine may use the same; "" for none
};

// Where rank 0 lets the other ranks in.
class Lobby {
 public:
  using LetIn = std::function<void(int rank, std::unique_ptr<Connection> connection)>;
  // Listens. Throws CommunicationError if no port is free.
  Lobby(const RankIdentity& self, const BootstrapOptions& options, LetIn let_in);

  // Lets ranks in that have come, and returns whether all have. Never waits. Throws
  // CommunicationError with the missing ranks when the time is over, InputError if ranks were
  // started differently.
  bool look();

 private:
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Deadline until;
  };

  void admit(std::unique_ptr<Connection> connection, const Message& message);
  std::string problem_of(const RankIdentity& one) const;
  uint64_t missing() const;
  std::string missing_text() const;
  void require_distinct_gpus() const;

  const BootstrapOptions options_;
  const LetIn let_in_;
  const Deadline deadline_;
  Socket listener_;
  int port_ = 0;
  std::list<Stranger> strangers_;
  std::vector<RankIdentity> ranks_;  // those that have come
  bool other_version_ = false;
};

// On the others: the connection to rank 0, which has let this rank in. Throws CommunicationError if
// rank 0 cannot be found in time, and what rank 0 says if it refuses this rank.
std::unique_ptr<Connection> find_rank_0(const RankIdentity& self, const BootstrapOptions& options);

}  // namespace zl
