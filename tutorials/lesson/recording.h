// What every rank had at each event of a run: what --step shows, and what the maps of lessons 07
// and 08 are drawn from.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"

namespace zl::lesson {

// A row of the table of --step: a name, and what one rank has there, as {"h.0", "# + /"}.
using Row = std::pair<std::string, std::string>;
struct View {
  std::function<std::vector<Row>()> rows = {};  // called on the rank's own thread at each event
  std::vector<std::string> legend = {};         // lines that explain the rows
};

// One rank at one event.
struct Snapshot {
  EventKind kind;
  int64_t sequence = 0;                   // of the event in the rank's stream
  std::string phase, unit, what, detail;  // of the event
  MemoryLedger ledger;
  CommunicationLog log;
  std::vector<Row> rows;

  int64_t sent(int ranks) const;  // [B] so far
  std::string text() const;       // "backward h.1   all_gather 'h.1 parameter'"
};

// Recorded are phases, events of units, and the ends of collectives of all ranks; their beginnings
// only where a row has changed since the last event. So all ranks record the same events in the
// same order, and the k-th of one rank belongs to the k-th of every other.
class Recording {
 public:
  explicit Recording(int ranks = 0) : ranks_(size_t(ranks)) {}

  // Records this rank from now on, until stop(). Everything given must live until then, or until
  // the rank ends. Each rank calls it on its own thread.
  void watch(Communicator& comm, const Memory& memory, View view);
  void stop(int rank) { ranks_[size_t(rank)].memory = nullptr; }

  int ranks() const { return int(ranks_.size()); }
  int64_t events() const;                                // that every rank recorded
  std::vector<const Snapshot*> at(int64_t event) const;  // by rank; events count from 0
  int64_t peak() const;                                  // [B] the most that a rank held in the run
  const std::vector<std::string>& legend() const { return ranks_[0].view.legend; }

 private:
  struct Rank {
    const Memory* memory = nullptr;  // null: not recorded
    View view;
    std::vector<Snapshot> events;
  };
  std::vector<Rank> ranks_;
};

}  // namespace zl::lesson
