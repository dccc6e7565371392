// Compares gradients with central differences, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "tensor/kernels.h"

namespace zl {

struct GradientCheckResult {
  // The largest |analytic - numeric| / max(1, |analytic|, |numeric|); infinite if one is NaN.
  double largest_error = 0;
  std::string worst;     // "h.0.mlp.c_fc.weight[17]: 0.25 by backward, 0.26 by differences"
  int64_t elements = 0;  // [n] checked
};

// Checks every `stride`-th element of each parameter. `loss` computes a scalar from the parameters
// on the tape. Their data and grad are f64 tensors on the CPU; grads are cleared first.
inline GradientCheckResult check_gradients(const std::vector<Parameter*>& parameters,
                                           const std::function<Var(Tape*)>& loss,
                                           int64_t stride = 1, double step = 1e-5) {
  for (Parameter* p : parameters) {
    require(p->data.defined() && p->grad.defined() && p->data.dtype() == Dtype::f64,
            "check_gradients: parameter '", p->name, "' needs data and grad of f64");
    kernel::fill(0, p->grad);
  }
  {
    Tape tape;
    const Var y = loss(&tape);
    Tensor one = activation_like(y.value(), {1});
    kernel::fill(1, one);
    tape.backward(y, one);
  }
  const auto value = [&] { return kernel::read(loss(nullptr).value()); };
  GradientCheckResult result;
  for (Parameter* p : parameters) {
    for (int64_t i = 0; i < p->numel(); i += stride) {
      double& x = p->data.data<double>()[size_t(i)];
      const double before = x;
      x = before + step;
      const double above = value();
      x = before - step;
      const double below = value();
      x = before;
      const double numeric = (above - below) / (2 * step),
                   analytic = p->grad.data<double>()[size_t(i)];
      const double difference =
          std::abs(analytic - numeric) / std::max({1.0, std::abs(analytic), std::abs(numeric)});
      const double error = std::isnan(difference) ? INFINITY : difference;
      ++result.elements;
      if (error > result.largest_error) {
        result.largest_error = error;
        result.worst =
            str(p->name, "[", i, "]: ", analytic, " by backward, ", numeric, " by differences");
      }
    }
  }
  return result;
}

}  // namespace zl
