// The runs of lesson 13, and the bytes that they save.
#pragma once

#include <fstream>
#include <numeric>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tutorials/lesson/model_m.h"

namespace zl::lesson {

inline constexpr int64_t kSaved = 3, kSteps = 6;  // a checkpoint after step 3 of 6

// The result of a run.
struct Bits {
  std::vector<double> losses;
  std::vector<float> weights;
  RunPosition position;
};

inline int other_ranks(int N) { return N > 1 ? N - 1 : 2; }

// On any of these numbers of ranks a step has as many micro-batches, and its sums do not depend on
// the ranks.
inline TrainingSpec spec_of(Lesson& lesson, StageKind stage, int ranks) {
  TrainingSpec spec = training_m(lesson, stage);
  spec.ranks = ranks;
  spec.micro_batch = 1;
  spec.engine.reproducible = true;
  spec.engine.accumulation = std::lcm(lesson.ranks(), other_ranks(lesson.ranks())) / ranks;
  spec.steps = kSteps;
  return spec;
}

inline Bits train(Lesson& lesson, const TrainingSpec& spec, bool recorded = false) {
  Bits bits;
  TrainingCallbacks callbacks;
  if (recorded) callbacks.at_start = [&](Trainer& rank) { watch(lesson, rank); };
  callbacks.at_end = [&](Trainer& rank) {
    lesson.recording().stop(rank.comm().rank());
    std::vector<float> weights = collect_weights(rank);
    if (rank.comm().rank() == 0) bits.weights = weights, bits.position = rank.position();
  };
  for (const StepRecord& step : run_training(spec, callbacks).steps)
    bits.losses.push_back(step.loss);
  return bits;
}

// All data files of a checkpoint, one after another.
inline std::string data_of(const std::string& checkpoint) {
  std::string all;
  for (const auto& [name, file] : read_manifest(checkpoint).files) {
    std::ifstream in(checkpoint + "/" + name, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

}  // namespace zl::lesson
