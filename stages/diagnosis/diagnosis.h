// What a wrong gradient or wrong weights of a stage mean: each typical mistake yields certain
// values, and the values that a stage has are compared with them.
#pragma once

#include <string>
#include <vector>

#include "stages/diagnosis/plain_training.h"

namespace zl {

struct Diagnosis {
  std::string meaning;   // "every gradient is 3.00 x ddp's: a sum over ranks, not a mean"
  std::string evidence;  // the first difference: element, rank, values, ratio
  bool found() const { return !meaning.empty(); }
};

// What is compared with what, and how far apart values may be that count as equal.
struct GradientCase {
  const FlatLayout& layout;
  const std::vector<std::vector<FlatValues>>& alone;  // of PlainTraining::gradients_alone()
  double tolerance = 1e-4;                            // relative, of 2-norms
};
// `shards`: of each rank, after the last backward pass of a step. Empty where all are right within
// the tolerance, and where no element is evidence.
Diagnosis diagnose_gradient(const GradientCase& c, const std::vector<FlatValues>& shards);

// The weights of one step: before it, as they must be after it, and as each rank has them in full.
struct WeightsCase {
  const FlatLayout& layout;
  const FlatValues &before, &after;
  double tolerance = 1e-6;  // relative, of 2-norms
};
Diagnosis diagnose_weights(const WeightsCase& c, const std::vector<FlatValues>& of_ranks);

// Every parameter in full, as the next forward pass uses it. Every rank must call it, between
// steps.
FlatValues full_parameters(Stage& stage);

// Runs one step of `spec` under its stage and one of the plain loop, and says what is wrong with
// the stage. A gradient with the loop's bits is right; only then the weights are judged, because
// Adam makes a large difference of a rounding error. Empty where the first step is right, and where
// the two cannot be compared: in f16, with other types for gradients, in reproducible mode, with
// ranks in other processes.
Diagnosis diagnose_stage(const TrainingSpec& spec);

}  // namespace zl
