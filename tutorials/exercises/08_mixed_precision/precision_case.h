// The data of a check of exercise 08.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// What is put into one rank's gradient in one step.
struct Overflow {
  size_t step = 0;
  int rank = 0;
  float value = 0;  // not finite
};

struct PrecisionCase {
  uint64_t seed = 0;
  int ranks = 1;
  int64_t n = 0;  // [n] of a shard
  size_t steps = 4;
  bool exact = false;  // f16 holds parameters and updates
  int exponent = -1;   // gradients are about 2^exponent
  double scale = 1024, min_scale = 1, max_norm = 0;
  int window = 1000;
  float rate = 0.125f;  // of the optimizer, which is SGD: a power of two, so that it rounds once
  std::vector<Overflow> overflows;

  float initial(int rank, int64_t i) const {
    const PhiloxStream random{seed, 1 + uint64_t(rank)};
    const double x = 2 * random.uniform(uint64_t(i)) - 1;
    return float(exact ? std::round(64 * x) / 64 : x < 0 ? x - 0.5 : x + 0.5);
  }
  // What the rank gets in step `step`, counting from 0.
  f16 scaled_gradient(int rank, size_t step, int64_t i, double scale) const {
    for (const Overflow& o : overflows)
      if (o.step == step && o.rank == rank && uint64_t(i) == seed % uint64_t(n))
        return f16(o.value);
    const PhiloxStream random{seed, 1000 + uint64_t(rank) * 1000 + step};
    const double x = random.uniform(uint64_t(i)) + 0.25,
                 size = std::ldexp(exact ? std::round(8 * x) / 8 : x, exponent - int(step % 2 * 4));
    return f16(float((random.block(uint64_t(i))[3] % 2 ? scale : -scale) * size));
  }
  // The first of this step; null: there is none.
  const Overflow* overflow(size_t step) const {
    const auto found = std::ranges::find(overflows, step, &Overflow::step);
    return found == overflows.end() ? nullptr : &*found;
  }
};

inline PrecisionCase precision_case(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  PrecisionCase c{.seed = options.check_seed(), .n = 2 * draw.between(15, 30) + 1};
  if (is("norm and clipping") || is("overflow on one rank")) c.ranks = int(draw.between(3, 4));
  if (is("one rank")) c.exact = true, c.exponent = 0, c.scale = 8;
  if (is("tiny updates")) c.exponent = -8;
  if (is("small gradients")) c.exponent = -19, c.scale = 65536;
  if (is("norm and clipping")) c.scale = 256, c.max_norm = 1 + 0.01 * double(draw.between(0, 100));
  if (is("overflow")) c.overflows = {{1, 0, INFINITY}, {2, 0, -INFINITY}, {3, 0, NAN}};
  if (is("overflow on one rank")) c.overflows = {{1, c.ranks - 1, INFINITY}, {2, 0, NAN}};
  if (is("scale")) {
    const int w = c.window = int(draw.between(4, 6));
    c.scale = 64;
    for (size_t at = 0; const int good : {w - 1, 2 * w + 2, w - 2, 0, w + 1}) {
      c.overflows.push_back({at += size_t(good), 0, INFINITY});
      c.steps = ++at + size_t(w) + 1;
    }
  }
  if (is("smallest scale")) {
    c.min_scale = double(2 << draw.between(0, 2)), c.scale = 4 * c.min_scale;
    c.window = 3, c.steps = 10;
    for (size_t step = 0; step < 4; ++step) c.overflows.push_back({step, 0, INFINITY});
  }
  return c;
}

}  // namespace zl::exercises
