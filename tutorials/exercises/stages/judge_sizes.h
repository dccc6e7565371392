// The sizes of a case, and what the closed formulas say of it: for the judges of bytes.
#pragma once

#include "stages/predict/closed_form.h"
#include "tutorials/exercises/stages/judge_stage.h"

namespace zl::exercises {

struct StageSizes {
  std::vector<std::string> names;
  std::vector<int64_t> full;  // [n] of each unit, padded
  int64_t total = 0;          // [n]
  int64_t element = 4;        // [B] of a parameter and of a gradient
  OptimizerBytes optimizer;
  Prediction prediction;
  // "reduce_gradient(block0)".
  std::string text(const StageCall& call) const;
};
StageSizes sizes_of(const StageCase& c);

// [B] by which a right stage's call makes a use of memory grow.
int64_t right_growth(const StageCase& c, const StageSizes& s, const StageCall& call, MemoryUse use);

// "gradients", "optimizer state".
std::string plain_name(MemoryUse use);

// Memory that is not the stage's to keep, or that the ledger does not see.
Verdict judge_hidden(const StageEvidence& e, const StageSizes& s);
// Memory that a call of a stage allocates and frees.
Verdict judge_temporaries(const StageEvidence& e, const StageSizes& s);

}  // namespace zl::exercises
