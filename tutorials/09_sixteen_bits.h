// A weight that is kept in 16 bits: for lesson 09. Two types have them: fp16, with the digits, and
// bf16, with the range.
#pragma once

#include "optim/flat_optimizer.h"
#include "tensor/kernels.h"

namespace zl::lesson {

// A weight of 1 after so many steps of SGD that add `update`. With master weights the optimizer
// keeps it in fp32, and `type` has its rounding; without them each step rounds the weight itself.
inline double after_steps(Memory& memory, Dtype type, bool master, int steps, double update) {
  const auto one = [&](Dtype t) { return Tensor::empty(memory, MemoryUse::parameter, {1}, t); };
  const Tensor weight = one(master ? type : Dtype::f32), gradient = one(weight.dtype()),
               in_16_bits = one(type);
  FlatOptimizer sgd(memory, 1, weight.dtype(), {.kind = OptimizerKind::sgd});
  kernel::fill(1, weight);
  kernel::fill(-update, gradient);
  if (master) kernel::fill(1, sgd.master());
  for (int step = 0; step < steps; ++step) {
    sgd.update(weight, gradient, 1, 1);
    if (master) continue;
    kernel::copy(weight, in_16_bits);
    kernel::copy(in_16_bits, weight);
  }
  return kernel::download_floats(weight)[0];
}

}  // namespace zl::lesson
