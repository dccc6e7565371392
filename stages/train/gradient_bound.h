// How far one step's gradient may be from ddp's where stages do not promise the same bits.
//
// With A micro-batches on N ranks, ddp and zero1 add micro-batches first, zero2 and zero3 ranks
// first. Each order is within A N u sum|g| of the exact sum, with the unit roundoff u = 2^-24 in
// fp32 (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 4.2), so two of them
// are within twice that. A parameter is judged by its 2-norm: single elements may differ by more,
// because matmuls add parts that cancel.
#pragma once

#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl {

// Of all parameters, the one whose difference to ddp is the largest part of what is allowed.
struct GradientDeviation {
  double part_of_bound = 0;  // |g - g of ddp| / bound, both 2-norms; above 1: beyond rounding
  int rank = 0;              // whose shard
  std::string parameter;
  int64_t element = 0;  // of the parameter: where the difference is largest
  double value = 0, value_of_ddp = 0;
};

// By rank. Vectors of ranks in other processes are empty.
using ShardsOfRanks = std::vector<std::vector<float>>;

// This rank's shards of the step's gradient, padded, all units in order: the mean over ranks,
// summed over micro-batches, times the loss scale. Read them after the last backward and before the
// update.
std::vector<float> gradient_shards(Trainer& trainer);

// sum|g| over the micro-batches of the first step, each computed alone: one more run of the ranks.
ShardsOfRanks gradient_magnitudes(const TrainingSpec& spec);

// All three are this rank's. Every rank must call it; all get the worst of all ranks.
// In zero3_qwz, after a step: the largest distance of an element of the gathered weights from the
// shard's, as a part of what 8 bits allow: half a scale, and rounding. The same on every rank,
// which must all call it. [n] of a rank's shard are compared by that rank.
double weights_part_of_bound(Trainer& trainer);

GradientDeviation largest_deviation(Trainer& trainer, const std::vector<float>& gradient,
                                    const std::vector<float>& of_ddp,
                                    const std::vector<float>& magnitude);

}  // namespace zl
