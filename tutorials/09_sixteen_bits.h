// What 16-bit numbers hold, and a weight that is kept in one: for lesson 09.
#pragma once

#include <cmath>

#include "optim/flat_optimizer.h"
#include "tensor/kernels.h"

namespace zl::lesson {

struct Format {
  Dtype type;
  int64_t exponent, mantissa;  // bits
};
inline constexpr Format kFormats[] = {{Dtype::f16, 5, 10}, {Dtype::bf16, 8, 7}};

inline float rounded(Dtype type, float x) {
  return type == Dtype::f16 ? float(f16(x)) : float(bf16(x));
}

// The least and the largest power of 2 that a type has, and the distance from 1 to the next number,
// found by rounding. All as exponents of 2.
struct Powers {
  int64_t least = 0, largest = 0, spacing = 0;
};
inline Powers powers_of(Dtype type) {
  const auto power = [](int64_t exponent) { return std::ldexp(1.0f, int(exponent)); };
  Powers p;
  while (rounded(type, power(p.least - 1)) > 0) --p.least;
  while (std::isfinite(rounded(type, power(p.largest + 1)))) ++p.largest;
  while (rounded(type, 1 + power(p.spacing - 1)) > 1) --p.spacing;
  return p;
}

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
