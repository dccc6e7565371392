// Compares gradients with central differences, in double.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace zl {

struct GradientCheckResult {
  // The largest |analytic - numeric| / max(1, |analytic|, |numeric|); infinite if one is NaN.
  double largest_error = 0;
  std::string worst;     // "h.0.mlp.c_fc.weight[17]: 0.25 by backward, 0.26 by differences"
  int64_t elements = 0;  // [n] checked
};

// Checks every `stride`-th element of each parameter. `loss` computes a scalar from the parameters
// on the tape. Their data and grad are f64 tensors on the CPU; grads are cleared first.
GradientCheckResult check_gradients(const std::vector<Parameter*>& parameters,
                                    const std::function<Var(Tape*)>& loss, int64_t stride = 1,
                                    double step = 1e-5);

}  // namespace zl
