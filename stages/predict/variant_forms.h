// The closed formulas of peaks, where those of variants differ from those of the stage that they
// vary.
#pragma once

#include <functional>

#include "stages/predict/closed_form.h"

namespace zl {

// [n] that the sum over replicas of one unit's shard needs, `copied` or in place.
int64_t peak_across(const PredictionInput& in, bool copied);

// [B] of tensors that communications in flight need in a micro-batch, where something is quantised.
// `of_reduction`: what a reduction in another type, or with scratch, needs for n elements.
int64_t peak_in_flight(const PredictionInput& in,
                       const std::function<int64_t(int64_t n)>& of_reduction);

}  // namespace zl
