// The closed formulas of the variants, where they differ from those of the stage that they vary.
#pragma once

#include <functional>

#include "stages/predict/closed_form.h"

namespace zl {

// Of stage 3 and its variants. One gather of a unit's parameters, n padded elements, in the forward
// or in the backward pass.
void add_gather(CommunicationLog& log, const PredictionInput& in, int64_t n, bool backward);
// All reductions of a step. `type`: communication_dtype, or the type that is used without one.
void add_variant_reductions(CommunicationLog& log, const PredictionInput& in, Dtype type);

// [n] of a rank's shard among the ranks of its node, of all units.
int64_t secondary_shard(const PredictionInput& in);

// [n] that the sum over replicas of one unit's shard needs, `copied` or in place.
int64_t peak_across(const PredictionInput& in, bool copied);

// [B] of tensors that communications in flight need in a micro-batch, where something is quantised.
// `of_reduction`: what a reduction in another type, or with scratch, needs for n elements.
int64_t peak_in_flight(const PredictionInput& in,
                       const std::function<int64_t(int64_t n)>& of_reduction);

}  // namespace zl
