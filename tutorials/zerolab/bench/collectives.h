// How long collectives take between the ranks of this machine.
#pragma once

#include <functional>
#include <vector>

#include "dist/trace/collective_trial.h"
#include "stages/train/trainer.h"

namespace zl::cli {

struct TimedTrial {
  TrialSpec spec;
  std::vector<double> seconds{};  // [s] of each call of the slowest rank
  int64_t wrong = 0;              // values of checked calls, on all ranks, that are not right
  int64_t bytes() const { return spec.count * size_of(spec.dtype); }
};

struct TrialOptions {
  // Each round times so many calls of each trial, after `warm_up` others, so that other load meets
  // all trials alike.
  int64_t rounds = 1, calls = 20, warm_up = 5;
  bool check = true;    // the values of one more call of each trial in each round
  bool spread = false;  // before all, give the system time to spread the ranks over cores
};

// Makes the trials on the ranks of `spec`. Rank 0's process gets the results, and `begin` is called
// there before each trial of each round. Throws Interrupted, and any error of a rank.
void time_trials(
    std::vector<TimedTrial>& trials, const TrainingSpec& spec, const TrialOptions& options,
    const std::function<void(const TimedTrial&)>& begin = [](auto&) {});

// [B] From `least` to at most `most`, each `factor` times the one before; 1: only the first.
std::vector<int64_t> sizes_between(int64_t least, int64_t most, int64_t factor);

}  // namespace zl::cli
