// The data of a check of exercise 08.
#pragma once

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
  enum class Numbers {
    exact,  // parameters and updates that f16 holds
    tiny,   // updates below the spacing of f16
    small,  // gradients that are below the smallest f16 unless they are scaled
    plain
  };
  uint64_t seed = 0;
  int ranks = 1;
  int64_t n = 0;  // [n] of a shard
  size_t steps = 4;
  Numbers numbers = Numbers::plain;
  double scale = 1024, min_scale = 1, max_norm = 0;
  int window = 1000;
  float rate = 0.125f;  // of the optimizer, which is SGD: a power of two, so that it rounds once
  std::vector<Overflow> overflows;

  float initial(int rank, int64_t i) const;
  // What the rank gets in step `step`, counting from 0.
  f16 scaled_gradient(int rank, size_t step, int64_t i, double scale) const;
  const Overflow* overflow(size_t step) const;  // the first of this step; null: there is none
};

PrecisionCase precision_case(const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises
