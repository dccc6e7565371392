// What every rank had at each event of a run: what --step shows, and what the maps of lessons 07
// and 08 are drawn from. (What the report plays is in run_recording.h.)
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "tensor/events.h"
#include "tensor/memory.h"

namespace zl::recording {

// A row of a table about one rank: a name, and what the rank has there, as {"h.0", "# + /"}.
using Row = std::pair<std::string, std::string>;

// Phases, unit events, and begins and ends of collectives of all ranks: two ranks record the same
// events in the same order. A send and a receive are of two ranks only, and the others have no such
// event.
inline bool is_collective(const Event& event) {
  return event.kind >= EventKind::collective_begin && event.what != std::string_view("send") &&
         event.what != std::string_view("receive");
}
inline bool is_recorded(const Event& event) {
  const bool at_point =
      event.kind == EventKind::collective_begin || event.kind == EventKind::collective_end;
  return event.kind == EventKind::phase || event.kind == EventKind::unit ||
         (at_point && is_collective(event));
}

// What is recorded of a rank beside its events, its memory and its traffic.
struct View {
  std::function<std::vector<Row>()> rows = {};  // called on the rank's own thread at each event
  std::vector<std::string> legend = {};         // lines that explain the rows
};

// One rank at one event.
struct Snapshot {
  EventKind kind;
  int64_t sequence = 0;                          // of the event in the rank's stream
  std::string phase, unit, what, detail, group;  // of the event
  std::vector<std::string> in_flight;            // names of calls that have begun and not ended
  MemoryLedger ledger;
  CommunicationLog log;
  std::vector<Row> rows;

  bool flies(const std::string& call) const;
  int64_t sent(int ranks) const;  // [B] so far
  std::string text() const;       // "backward h.1   all_gather 'h.1 parameter'"
};

// The runs that --step shows. Shown are phases, events of units, and the ends of collectives of all
// ranks; their beginnings only of gradients, and where a row has changed since the event shown
// before. So all ranks show the same events in the same order, and the k-th of one rank belongs to
// the k-th of every other.
class Recording {
 public:
  explicit Recording(int ranks = 0) : ranks_(size_t(ranks)) {}

  // Records this rank from now on, until stop(). Everything given must live until then, or until
  // the rank ends. Each rank calls it on its own thread.
  void watch(Communicator& comm, const Memory& memory, View view);
  void stop(int rank) { ranks_[size_t(rank)].memory = nullptr; }

  int ranks() const { return int(ranks_.size()); }
  int64_t events() const;  // that every rank has
  // By rank; events count from 0. Valid until the next event is recorded.
  std::vector<const Snapshot*> at(int64_t event) const;
  int64_t peak() const;  // [B] the most that a rank held in the run
  const std::vector<std::string>& legend() const { return ranks_[0].view.legend; }

 private:
  struct Rank {
    const Memory* memory = nullptr;  // null: not recorded
    View view;
    std::vector<std::string> in_flight;
    std::vector<Row> rows;  // at the last event
    bool changed = false;   // a row, since the event that was shown last
    std::vector<Snapshot> shown;
  };
  std::vector<Rank> ranks_;
};

// Where the letter of a parameter and of a gradient is in a row of holdings() of stage_reader.h; or
// the calls.
enum class Drawn { parameter = 0, gradient = 2, in_flight };

// When rank 0 holds the full tensor of each unit: '#' full, '.' a shard or nothing. Or which of its
// calls are in flight: 'G' for the gradient of a unit, 'P' for its parameters, '.' none. A row per
// unit below a line of phases, a column per event of a unit; those of full tensors in forward and
// backward only. In all lines '|' is where a phase begins.
std::vector<std::string> unit_map(const Recording& recording, Drawn what);

// The most units of a map that are full, or in flight, at one event.
int64_t most_at_once(const std::vector<std::string>& map);

}  // namespace zl::recording
