// A tiny GPT that trains for two steps on explored ranks, beside the same training on ordinary
// ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/gpt.h"
#include "stages/train/trainer.h"
#include "tests/stages/explored/explored_ranks.h"

namespace zl::test {

// How one training overlaps. The stage is added to it.
struct ExploredCase {
  int ranks = 2;
  int accumulation = 1;
  int64_t layers = 2;
  int64_t bucket = 1;  // [n] of reductions and of all-gathers
  Overlap overlap;
  Dtype dtype = Dtype::f32;
  Recompute recompute = Recompute::selective;
  bool reproducible = false, offload = false;
  int steps = 2;
};

// The cases that are explored: every mechanism alone and together, 2 and 3 ranks, A = 1 and 2,
// buckets of one unit and of one and a half.
std::span<const ExploredCase> explored_cases();

// One training of one case in one schedule, written as "zero3 2 pct 4711".
struct ExploredRun {
  StageKind stage = StageKind::zero3;
  size_t number = 0;  // of the case
  ScheduleName schedule;
  std::string text() const;
};
ExploredRun parse_run(const std::string& text);  // throws InputError

// What a training produced.
struct Trained {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  std::vector<RankReport> ranks;
};

struct TrainOptions {
  ExploredRanks* explored = nullptr;  // null: ordinary ranks
  TrainingCallbacks callbacks;        // at_end is taken
};
Trained train(const ExploredCase& explored_case, StageKind stage, const TrainOptions& options);

// The training of a case under a stage, and the results that it must have in every schedule.
class ExploredTraining {
 public:
  ExploredTraining(const ExploredCase& explored_case, StageKind stage);

  // What is wrong in this schedule, or "". The first word says by what it was found: race, bits,
  // poison (a result is NaN), memory, traffic, flight (more in flight than allowed), deadline,
  // error.
  std::string wrong_with(Schedule& schedule);
  int64_t steps() const { return steps_; }  // of the last schedule
  int calls() const { return calls_; }      // of the last schedule, of one rank

 private:
  // The most all-gathers of parameters that may be in flight at one time.
  int allowed_gathers() const;
  std::string compare_results(const Trained& run) const;
  std::string compare_counts(const Trained& run) const;
  std::string compare_outcomes(const ExploredRanks& ranks) const;

  ExploredCase case_;
  StageKind stage_;
  Trained without_overlap_, with_overlap_;  // on ordinary ranks
  int64_t steps_ = 0;
  int calls_ = 0;
};

// The same of a run that has a name.
std::string wrong_with(const ExploredRun& run);

// An exception in a training.
struct Failure {
  int rank = 0;
  // Event number `at`, counted from 0, at which a call of the rank is in flight. No release, at
  // which no listener may throw.
  int64_t at = 0;
  bool allocation = false;  // instead, allocation number `at` of the steps: OutOfMemory
};
// What is wrong after it: bytes that were not freed, a rank that failed with anything but a
// CommunicationError or waits for a call that cannot happen, a race. Empty: nothing. Not set: the
// training has no such event.
std::optional<std::string> wrong_after(const Failure& failure, const ExploredCase& explored_case,
                                       StageKind stage, Schedule& schedule);

}  // namespace zl::test
