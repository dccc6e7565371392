// What --step shows: one moment of all ranks as text of at most 80 columns. Plain ASCII, so that it
// goes over any line.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "dist/communication_log.h"
#include "tensor/memory.h"
#include "tutorials/lesson/unit_cell.h"

namespace zl::lesson {

// One rank at a named event.
struct RankMoment {
  int rank = 0;
  std::string phase, unit, what, detail;  // of the event
  MemoryLedger ledger;
  CommunicationLog log;
  std::vector<UnitCell> units;   // none where no stage is watched
  int64_t sent(int size) const;  // [B] so far
};

struct Moment {
  std::string lesson;
  int64_t event = 0;              // counts from 1
  int size = 1;                   // how many ranks began
  std::vector<RankMoment> ranks;  // by rank; those that have ended are left out
};

// The event in one line: "backward  h.1  all_gather 'h.1 parameter'".
std::string event_text(const RankMoment& rank);

enum class Panel { none, memory, communication };
std::vector<std::string> picture(const Moment& moment, Panel panel);
// The same for a stream that is no terminal: one line.
std::string plain_line(const Moment& moment);

}  // namespace zl::lesson
