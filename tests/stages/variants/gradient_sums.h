// The reduction of chosen gradients by one stage, without a model's passes: what each rank keeps
// for the update.
#pragma once

#include <functional>
#include <vector>

#include "tests/stages/stage_run.h"

namespace zl::test {

struct GradientSums {
  StageKind stage = StageKind::zero3;
  int ranks = 4, micro_batches = 1;
  Options options;
  // The gradient of an element of the flat unit on a rank, in micro-batch a.
  std::function<double(int rank, int a, int64_t element)> gradient;
};

// By unit: the flat gradient after the last micro-batch, divided by the ranks. Empty: ranks that
// hold the same elements have other bits.
std::vector<std::vector<float>> reduced(const GradientSums& sums);

}  // namespace zl::test
