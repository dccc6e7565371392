// The data of a check of exercise 08.
#pragma once

#include <cmath>
#include <map>

#include "tutorials/exercises/08_mixed_precision/mixed_precision.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// The script of a run. An overflow puts its value, which is not finite, into one element of one
// rank's gradient; everything else is finite.
struct PrecisionCase {
  int ranks = 1;
  size_t steps = 4;
  PrecisionOptions options{.initial_scale = 1024};
  std::map<size_t, float> overflows;  // by step, counting from 0: in rank step % ranks
  // (n) By rank, and by step and rank, not scaled. f16 holds all gradients when they are scaled,
  // and the initial values of the check "one rank" only.
  std::vector<Values> initial;
  std::vector<std::vector<Values>> gradients;
};

// The optimizer is SGD with this rate, a power of two, so that it rounds once.
inline constexpr float kRate = 0.125f;

inline PrecisionCase precision_case(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  PrecisionCase c;
  PrecisionOptions& o = c.options;
  int exponent = -1;  // gradients are at most 2^exponent
  if (is("norm and clipping") || is("overflow on one rank")) c.ranks = int(draw.between(3, 4));
  if (is("one rank")) exponent = 0, o.initial_scale = 8;
  if (is("tiny updates")) exponent = -8;
  if (is("small gradients")) exponent = -19, o.initial_scale = 65536;
  if (is("norm and clipping")) o.max_norm = 1 + 0.01 * double(draw.between(0, 100));
  if (is("overflow")) c.overflows = {{1, INFINITY}, {2, -INFINITY}, {3, NAN}};
  if (is("overflow on one rank")) c.overflows = {{1, INFINITY}, {2, NAN}};
  if (is("scale")) {
    const int w = o.window = int(draw.between(4, 6));
    for (size_t at = 0; const int good : {w - 1, 2 * w + 2, w - 2, 0, w + 1}) {
      c.overflows[at += size_t(good)] = INFINITY;
      c.steps = ++at + size_t(w) + 1;
    }
  }
  if (is("smallest scale")) {
    o.window = 3, o.min_scale = o.initial_scale / 4, c.steps = 10;
    for (size_t step = 0; step < 4; ++step) c.overflows[step] = INFINITY;
  }
  const auto values = [&, n = 2 * draw.between(15, 30) + 1](int64_t most, double unit) {
    std::vector<Values> of_ranks(size_t(c.ranks), Values(size_t(n)));
    for (Values& of_rank : of_ranks)
      for (double& value : of_rank) value = unit * double(draw.between(-most, most));
    return of_ranks;
  };
  c.initial = values(96, 1.0 / 128 + (is("one rank") ? 0 : std::ldexp(1, -20)));
  for (size_t step = 0; step < c.steps; ++step) {
    c.gradients.push_back(values(8, std::ldexp(1, exponent - 3 - int(step % 2 * 4))));
    if (c.overflows.contains(step))
      c.gradients[step][step % size_t(c.ranks)][5] = double(c.overflows[step]);
  }
  return c;
}

}  // namespace zl::exercises
