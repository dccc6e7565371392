// Exercise 01: what you write.
#pragma once

#include "autograd/tape.h"

namespace zl::exercises {

// Root mean square layer normalisation of each row: Zhang & Sennrich 2019 (arXiv:1910.07467),
// eq. 4.
//   x (…, C), weight (C) -> y (…, C):  y = x / rms(x) * weight,  rms(x) = sqrt(mean(x^2) + eps).
// Keeps x, and 1/rms of each row. All are f32.
// Throws std::invalid_argument unless weight has the shape (C).
Var rms_norm(const Var& x, const Var& weight, double eps);

}  // namespace zl::exercises
