// What exercise 04 defines: the part of DDP that decides when gradients are reduced.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace zl {

// The gradient of a unit on this rank.
struct UnitGradient {
  std::string name;  // of its all-reduce: "h.1 gradient"
  Tensor gradient;   // (n) f32. Backward adds to it; at the beginning of a step it is zero
};

// All ranks use the same units in the same micro-batches, and make the same calls in the same
// order.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  // Backward has added the gradient of this micro-batch to units[unit].gradient. At most once per
  // unit and micro-batch. last_micro_batch: it is the last one of this step.
  virtual void gradient_ready(size_t unit, bool last_micro_batch) = 0;
  // The backward pass of this micro-batch has ended.
  virtual void backward_done(bool last_micro_batch) = 0;
  // Called before the update, after backward_done(true).
  virtual void wait() = 0;
};

// bucket_size [n]: a bucket is full when its units have this many elements or more. `units` and
// `comm` outlive the reducer.
std::unique_ptr<GradientReducer> make_gradient_reducer(std::vector<UnitGradient>& units,
                                                       Communicator& comm, int64_t bucket_size);

}  // namespace zl
