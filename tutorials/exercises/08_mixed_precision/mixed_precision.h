// What exercise 08 defines: one step of training in mixed precision, on this rank's shard.
#pragma once

#include <memory>
#include <span>

#include "stages/numerics/gradient_norm.h"
#include "tensor/dtype.h"

namespace zl {

// An optimizer in fp32, which the exercise provides.
class ShardOptimizer {
 public:
  virtual ~ShardOptimizer() = default;
  // Updates `parameters` (n) by `gradient` (n). Each call advances its state, as Adam's moments and
  // number of steps.
  virtual void step(std::span<float> parameters, std::span<const float> gradient) = 0;
};

// A rank's shard. The two references and the memory of the spans outlive MixedPrecision.
struct PrecisionShard {
  std::span<const float> initial;  // (n) values to begin with
  std::span<f16> parameters;       // (n) what forward and backward read
  ShardOptimizer& optimizer;
  Communicator& comm;
  Memory& memory;  // for sum_over_ranks()
};

struct PrecisionOptions {
  double initial_scale = 65536;  // of the loss; this, and all that follow, are powers of two
  int window = 1000;             // so many good steps in a row double the scale
  double min_scale = 1;          // overflows do not halve it further
  double max_norm = 0;           // of the gradient of all ranks; 0: any
};

struct PrecisionStep {
  double norm = 0;       // of the gradient of all ranks, not scaled, before clipping
  bool skipped = false;  // the gradient was not finite on some rank: nothing was updated
};

// The sum of one number per rank, with the same bits on every rank. Every rank must call it; waits.
inline double sum_over_ranks(Communicator& comm, Memory& memory, double mine, CallName name) {
  return RankNumbers(comm, memory, std::span(&mine, 1), name).wait_for_sum();
}

// All ranks make the same calls in the same order.
class MixedPrecision {
 public:
  virtual ~MixedPrecision() = default;
  // The loss of the next step is multiplied by this before backward.
  virtual double loss_scale() const = 0;
  // (n) The master weights.
  virtual std::span<const float> master() const = 0;
  // `gradient` (n), valid during the call: this rank's shard of the mean over ranks, times
  // loss_scale(), rounded to f16.
  virtual PrecisionStep step(std::span<const f16> gradient) = 0;
};

std::unique_ptr<MixedPrecision> make_mixed_precision(const PrecisionShard& shard,
                                                     const PrecisionOptions& options);

}  // namespace zl
