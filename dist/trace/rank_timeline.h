// What one rank did as slices of time, from its events.
#pragma once

#include <string>
#include <vector>

#include "dist/trace/trace_recorder.h"

namespace zl {

// Something that lasted. Slices of one track are apart or one within the other. [ns]
struct Slice {
  enum class Kind { phase, unit, kernel } kind;
  std::string name;  // "backward", "h.1 backward", "matmul"
  int64_t begin = 0, end = 0;
  int64_t bytes = 0, operations = 0;  // of a kernel
};

// A collective, from entering to leaving. [ns]
struct CollectiveSlice {
  int32_t kind = 0, name = 0;  // places in RankTrace::texts
  int64_t begin = 0, met = 0,
          end = 0;  // met: the last rank had arrived; from `begin` on this rank waited for it
  int64_t bytes = 0, count = 0, sent = 0;  // of the unsharded side; [n]; by the ring formula
  int lane = 0;                            // calls of one group overlap, each in a lane of its own
  int64_t index =
      -1;  // the how-manieth of this rank that all ranks take part in; -1: a send or receive
  bool has_met = false, ended = false;
};

struct RankTimeline {
  std::vector<Slice> compute;                // by their ends
  std::vector<CollectiveSlice> collectives;  // by their begins
  int lanes = 0;
  int64_t begin = 0, end = 0;  // of all
};

// A kernel lasts until the rank's next event, its own workspace apart: on a GPU, as long as it took
// to be launched. What is open when the events end, ends there.
RankTimeline timeline(const RankTrace& trace);

}  // namespace zl
