// How long one collective takes, alone on its links.
//
// The machine's own measurements come first. Without them the algorithm and its plateau follow
// NCCL's tuning model (src/graph/tuning.cc): in one node a ring, or sums in the switch (NVLS);
// between nodes a ring, or two levels for all-reduce, whichever is faster for the size of the call.
// Each rank of a node has its own ports. The time is that of three terms, because
// NCCL's own two are up to twice as fast as measurements between 1 and 256 MiB.
#pragma once

#include <cstdint>
#include <span>

#include "stages/predict/clock/machine.h"

namespace zl {

// The ranks of a call: so many, in so many nodes. `sharing`: groups like this one that make the
// same call at the same time and share a node's network. `fewest`: ranks of the group on the node
// that has the fewest; 0: they are divided evenly.
struct RankPlaces {
  int ranks = 1, nodes = 1, sharing = 1, fewest = 0;
};
// The places of all ranks, or of a group of `ranks`, each `stride` ranks after the one before.
RankPlaces places_of(const Machine& machine, int ranks, int stride = 1);
// Of the groups of `each` consecutive ranks, the places of one that is in most nodes.
RankPlaces places_of_groups(const Machine& machine, int ranks, int each);

struct CollectiveModel {
  const char* algorithm = "";  // "measured", "ring", "NVLS", "two levels", "none"
  CollectiveTerms terms;
};
// Of the algorithms that the machine has, the one that takes least time for `bytes` of the
// unsharded side.
CollectiveModel collective_model(const Machine& machine, Collective collective, int64_t bytes,
                                 const RankPlaces& places);

// [sqrt(B)] What the second term grows with: sqrt(S), up to 128 MiB. NCCL's chunks have a largest
// size, so that larger calls have no more to fill.
double fill_root(int64_t bytes);
// [s] What the terms say for `bytes` of the unsharded side.
double seconds_of(const CollectiveTerms& terms, Collective collective, int64_t bytes, int ranks);
// Bytes that a link carries for each byte of the unsharded side.
double link_factor(Collective collective, int ranks);

// [s] `bytes`: of the unsharded side.
double collective_seconds(const Machine& machine, Collective collective, int64_t bytes,
                          const RankPlaces& places);

// ---- the three terms of measured calls ---------------------------------------------------------

struct TimedCall {
  int64_t bytes = 0;  // of the unsharded side
  double seconds = 0;
};

// The terms of at least 0, found by coordinate descent, with the smallest sum of squares of
// relative errors, because the times of one table span five powers of ten. A term that is not
// needed is 0. Throws std::invalid_argument unless there are calls and all of their bytes and
// seconds are positive.
CollectiveTerms fit_terms(std::span<const TimedCall> calls, Collective collective, int ranks);

}  // namespace zl
