// How long collectives take between the ranks of this machine (comm.cpp).
#pragma once

#include <functional>
#include <vector>

#include "dist/trace/collective_trial.h"
#include "stages/train/trainer.h"

namespace zl::cli {

struct TimedTrial {
  TrialSpec spec;
  std::vector<double> seconds{};  // [s] of each call of the slowest rank
  int64_t wrong = 0;              // values of a call, on all ranks, that are not right
  int64_t bytes() const { return spec.count * size_of(spec.dtype); }
};

// Each round times so many calls of each trial, after `warm_up` others, so that other load meets
// all trials alike.
struct TrialCalls {
  int64_t rounds = 1, calls = 20, warm_up = 5;
};

// Makes the trials on the ranks of `spec`; the first round checks one more call of each. Rank 0's
// process gets the results, and `begin` is called there before each trial of each round. Throws
// Interrupted, and any error of a rank.
void time_trials(
    std::vector<TimedTrial>& trials, const TrainingSpec& spec, const TrialCalls& number,
    const std::function<void(const TimedTrial&)>& begin = [](auto&) {});

}  // namespace zl::cli
