// How long collectives take between the ranks of this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stages/predict/clock/machine.h"
#include "stages/train/trainer.h"

namespace zl::cli {

struct CollectiveSizes {
  int64_t most = int64_t(32) << 20;  // [B] of the unsharded side
  // Each round times so many calls of each size, so that other load meets all sizes alike.
  int64_t rounds = 8, calls = 5;
};

// How often time_collectives() calls `begin_trial`.
int64_t timed_sizes(const CollectiveSizes& sizes);

// all_reduce, reduce_scatter and all_gather between the ranks of `spec`, fitted.
// `begin_trial` is called before each size of each round. Throws Interrupted, and any error of a
// rank.
std::vector<CollectiveRow> time_collectives(const TrainingSpec& spec, const CollectiveSizes& sizes,
                                            const std::function<void(std::string)>& begin_trial);

}  // namespace zl::cli
