// What one rank did as slices of time, from its recorded events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/trace/trace_recorder.h"

namespace zl {

// A slice of time on a track: two slices do not overlap, or one contains the other. [ns]
struct Slice {
  enum class Kind { phase, unit, kernel } kind;
  std::string name;  // "backward", "h.1 backward", "matmul"
  int64_t begin = 0, end = 0;
  int64_t bytes = 0, operations = 0;  // of a kernel
};

// A collective, from entering to leaving; one in flight, from its issue until its data had moved.
// [ns]
struct CollectiveSlice {
  int32_t kind = 0, name = 0, group = 0;   // indices into RankTrace::texts
  int64_t begin = 0, met = 0, end = 0;     // met: the last rank had arrived
  int64_t wait = 0, waited = 0;            // the rank waited for it from and to; both 0: not so far
  int64_t bytes = 0, count = 0, sent = 0;  // of the unsharded side; [n]; by the ring formula
  int lane = 0;                            // overlapping calls have different lanes
  int64_t index = -1;                      // counts those of all ranks; -1: another call
  bool has_met = false, has_wait = false, has_moved = false, ended = false;
};

struct RankTimeline {
  std::vector<Slice> compute;                // by their ends
  std::vector<CollectiveSlice> collectives;  // by their begins
  int lanes = 0;
  int64_t begin = 0, end = 0;  // of all
};

// A kernel lasts until the rank's next event, except for the allocation of its workspace: on a
// GPU that is the time of its launch. What is open when the events end, ends there.
RankTimeline timeline(const RankTrace& trace);

}  // namespace zl
