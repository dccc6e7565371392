// How far one step's gradient may be from ddp's where stages do not promise the same bits.
//
// Kernels compute the same terms in every stage; stages add them in different orders. ddp and zero1
// add those of all micro-batches to one buffer, zero2 and zero3 those of one micro-batch at a time.
// A rounding moves a number by at most u times its magnitude, with the unit roundoff u = 2^-24 in
// fp32, 2^-11 in fp16, 2^-8 in bf16 (Higham 2002, "Accuracy and Stability of Numerical Algorithms",
// section 2.2). So two orders are within u times the sum of all numbers that either of them rounds:
//   each value of the gradient buffer after an op has added to it, beginning with a micro-batch
//     (zero2, v), and after the earlier micro-batches (ddp, P + v);
//   the sums over micro-batches of the means over ranks, and conversions for communication.
// The first are measured, by a plain loop that reads the buffer before each addition and after the
// last.
// So a tied weight whose parts cancel, or one that is used fifty times, gets what it needs. Ops sum
// in fp32 and round to the buffer's type once. A matmul adds one number per 512 rows
// (tensor/cpu/gemm.h); the values between them, which are not measured, count four times as much as
// the last one. A parameter is judged by its 2-norm.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stages/diagnosis/plain_training.h"

namespace zl {

// Of all parameters, the one whose difference to ddp is the largest part of what is allowed.
struct GradientDeviation {
  double part_of_bound = 0;  // |g - g of ddp| / bound, both 2-norms; above 1: beyond rounding
  int rank = 0;              // whose shard
  std::string parameter;
  int64_t element = 0;  // of the parameter: where the difference is largest
  double value = 0, value_of_ddp = 0;
};

// Of the first step, over micro-batches; means over ranks, times the loss scale.
struct GradientMagnitudes {
  FlatValues sum;  // of |g| of each micro-batch, computed alone
  // Of all that is rounded: |v| and |P + v|, with P the sum of the earlier micro-batches, the sums
  // of the means over ranks, and conversions.
  FlatValues rounded;
};

// This rank's shards of the step's gradient, padded, all units in order: the mean over ranks,
// summed over micro-batches, times the loss scale. Read them after the last backward and before the
// update. FlatLayout::full() puts those of all ranks together.
FlatValues gradient_shards(Trainer& trainer);

// The shards that the ranks pass, by rank. Every rank must call it.
std::vector<FlatValues> of_all_ranks(Communicator& comm, std::span<const float> shards);

// By the plain loop, which computes on the device of rank 0.
GradientMagnitudes gradient_magnitudes(const TrainingSpec& spec);

// Judges each parameter in the shard of each rank by itself. All values are full.
GradientDeviation largest_deviation(const TrainingSpec& spec, const FlatLayout& layout,
                                    const FlatValues& gradient, const FlatValues& of_ddp,
                                    const GradientMagnitudes& magnitudes);

// In zero3_qwz, after a step: the largest distance of an element of the gathered weights from the
// shard's, as a part of what 8 bits allow: half a scale, and rounding. The same on every rank,
// which must all call it. [n] of a rank's shard are compared by that rank.
double weights_part_of_bound(Trainer& trainer);

}  // namespace zl
