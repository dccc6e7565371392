// The data of a check of exercise 08.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace zl::exercises {

// What is put into one rank's gradient in one step.
struct Overflow {
  size_t step = 0;
  int rank = 0;
  int64_t element = 0;
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
  size_t steps = 0;
  Numbers numbers = Numbers::plain;
  double scale = 1024, min_scale = 1, max_norm = 0;
  int window = 1000;
  std::vector<Overflow> overflows;

  float initial(int rank, int64_t i) const;
  // Of step `step`, counting from 0: before scaling, and as the rank gets it.
  double gradient(int rank, size_t step, int64_t i) const;
  f16 scaled_gradient(int rank, size_t step, int64_t i, double scale) const;
  bool overflow(size_t step) const;            // on any rank
  bool overflow(size_t step, int rank) const;  // on this one
  float rate() const;                          // of the optimizer, which is SGD
};

PrecisionCase precision_case(const std::string& check, uint64_t seed);

}  // namespace zl::exercises
