// Flat parameters and gradients for the optimizer tests, and their update in double.
#pragma once

#include <functional>
#include <optional>

#include "optim/flat_optimizer.h"
#include "tests/autograd/workbench.h"

namespace zl {

// Numbers of either sign from 1e-4 to 1, different at each step.
inline std::vector<double> gradient_values(int64_t n, int64_t step) {
  std::vector<double> g;
  for (int64_t i = 0; i < n; ++i)
    g.push_back(std::sin(double(1 + 3 * i + 7 * step)) * std::pow(10.0, -double(i % 5)));
  return g;
}

struct Run {
  std::vector<double> parameters, master;
  int64_t steps;
};

// `steps` updates of n parameters of `type`, from standard normal values, with gradients of the
// same type or of `gradient`.
inline Run run_optimizer(Workbench& bench, const OptimizerConfig& config, int64_t n, int64_t steps,
                         Dtype type = Dtype::f64, std::optional<Dtype> gradient = {}) {
  const Tensor p = Tensor::empty(bench.memory, MemoryUse::parameter, {n}, type);
  kernel::normal({.seed = 3}, 0, p);
  FlatOptimizer optimizer(bench.memory, n, type, config);
  if (optimizer.master().defined()) kernel::copy(p, optimizer.master());
  for (int64_t s = 0; s < steps; ++s)
    optimizer.update(p, bench.tensor({n}, gradient_values(n, s), gradient.value_or(type)),
                     config.lr, 1);
  return {values(p),
          optimizer.master().defined() ? values(optimizer.master()) : std::vector<double>(),
          optimizer.steps()};
}

struct Types {
  Dtype parameter, gradient;
};
// The same in double: `update` gets an element, its gradient and the number of the step from 1.
inline std::vector<double> run_in_double(
    Workbench& bench, int64_t n, int64_t steps, Types types,
    const std::function<double(int64_t, double, double, int64_t)>& update) {
  const Tensor start = Tensor::empty(bench.memory, MemoryUse::parameter, {n}, types.parameter);
  kernel::normal({.seed = 3}, 0, start);
  auto p = values(start);
  for (int64_t s = 0; s < steps; ++s) {
    const auto g = values(bench.tensor({n}, gradient_values(n, s), types.gradient));
    for (int64_t i = 0; i < n; ++i) p[size_t(i)] = update(i, p[size_t(i)], g[size_t(i)], s + 1);
  }
  return p;
}

}  // namespace zl
