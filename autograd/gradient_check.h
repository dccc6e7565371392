// Compares gradients with central differences, in double.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace zl {

struct GradientCheckResult {
  double largest_error = 0;  // |analytic - numeric| / max(1, |analytic|, |numeric|) over the
                             // elements looked at; NaN counts as infinite
  std::string worst;         // "h.0.mlp.c_fc.weight[17]: 0.25 by backward, 0.26 by differences"
  int64_t elements = 0;      // how many were looked at
};

// `loss` builds a scalar on the tape from the parameters, whose data and grad are f64 and on the
// CPU; grads are cleared first. Looks at every `stride`-th element of each parameter.
GradientCheckResult check_gradients(const std::vector<Parameter*>& parameters,
                                    const std::function<Var(Tape*)>& loss, int64_t stride = 1,
                                    double step = 1e-5);

}  // namespace zl
