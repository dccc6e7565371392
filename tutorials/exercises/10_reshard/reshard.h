// Exercise 10: what you write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zl::exercises {

struct UnitParameter {
  int64_t numel = 0;    // [n]
  bool frozen = false;  // never updated: it has weights, but no moments
  int tied_to = -1;     // shares the memory of this earlier parameter, which is not tied; -1: none
};

enum class State {
  weights,
  moments,  // of the optimizer, such as exp_avg
};

// A unit, sharded among the ranks of a run. Its flat memory of a state holds in order
//  - of the weights: each parameter that is not tied,
//  - of the moments: each parameter that is neither tied nor frozen.
// Each begins at a multiple of 16 elements. The memory is padded at its end to a multiple of
// 16 * ranks elements. Rank r has the r-th of `ranks` equal shards.
struct ShardedUnit {
  int ranks = 0;
  std::vector<UnitParameter> parameters;
};

// What the ranks of an earlier run saved: each its shards, padding included. Padding may hold
// anything, between parameters and at the end.
class SavedPieces {
 public:
  virtual ~SavedPieces() = default;
  // As it was when the pieces were saved.
  virtual const ShardedUnit& unit() const = 0;
  // Reads elements [first, first + to.size()) of the shard that `rank` saved.
  virtual void read(int rank, State state, int64_t first, std::span<float> to) = 0;
};

// The shard of `rank` in a run that holds the unit as `now`. Parameters have the same numbers and
// sizes in both runs; the number of ranks, `frozen` and `tied_to` may differ.
//  - Padding is 0.
//  - Moments of a parameter that was frozen begin with 0.
//  - A parameter that was tied and is not any more gets what the one that it was tied to has.
// Only what the shard needs is read: of each parameter its part in the shard, once, by one call for
// each piece that holds some of it.
std::vector<float> load_shard(SavedPieces& saved, const ShardedUnit& now, int rank, State state);

}  // namespace zl::exercises
