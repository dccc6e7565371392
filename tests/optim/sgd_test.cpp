// SGD against torch.optim.SGD's formula in double.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/optim/flat_values.h"

namespace zl {
namespace {

constexpr int64_t n = 37;

std::vector<double> sgd_in_double(Workbench& bench, const OptimizerConfig& c, int64_t steps,
                                  Dtype type) {
  std::vector<double> buffer(size_t(n), 0.0);
  return run_in_double(bench, n, steps, type, [&](int64_t i, double p, double g, int64_t t) {
    g += c.weight_decay * p;
    if (c.momentum != 0) {
      double& b = buffer[size_t(i)];
      b = t == 1 ? g : c.momentum * b + (1 - c.dampening) * g;
      g = c.nesterov ? g + c.momentum * b : b;
    }
    return p - c.lr * g;
  });
}

}  // namespace

TEST_CASE("SGD follows torch's formula over 100 steps in all its variants", "[optim]") {
  Workbench bench;
  OptimizerConfig c{.kind = OptimizerKind::sgd, .lr = 0.01};
  c.weight_decay = GENERATE(0.0, 0.1);
  const int variant = GENERATE(0, 1, 2, 3);
  if (variant > 0) c.momentum = 0.9;
  if (variant == 2) c.dampening = 0.3;
  if (variant == 3) c.nesterov = true;
  CAPTURE(c.weight_decay, variant);
  CHECK(largest_difference(run_optimizer(bench, c, n, 100).parameters,
                           sgd_in_double(bench, c, 100, Dtype::f64)) < 1e-13);
  CHECK(largest_difference(run_optimizer(bench, c, n, 100, Dtype::f32).parameters,
                           sgd_in_double(bench, c, 100, Dtype::f32)) < 1e-5);
  for (Dtype type : {Dtype::bf16, Dtype::f16})
    CHECK(largest_difference(run_optimizer(bench, c, n, 100, type).master,
                             sgd_in_double(bench, c, 100, type)) < 1e-5);
}

TEST_CASE("each setting of SGD changes the result", "[optim]") {
  Workbench bench;
  const OptimizerConfig plain{
      .kind = OptimizerKind::sgd, .lr = 0.01, .weight_decay = 0.1, .momentum = 0.9};
  OptimizerConfig other = plain;
  switch (GENERATE(0, 1, 2, 3, 4)) {
    case 0: other.lr = 0.02; break;
    case 1: other.weight_decay = 0; break;
    case 2: other.momentum = 0.8; break;
    case 3: other.dampening = 0.3; break;
    case 4: other.nesterov = true; break;
  }
  CHECK(largest_difference(run_optimizer(bench, plain, n, 10).parameters,
                           run_optimizer(bench, other, n, 10).parameters) > 1e-4);
}

TEST_CASE("the first step copies the gradient into the momentum buffer without dampening",
          "[optim]") {
  Workbench bench;
  const Tensor p = bench.tensor({1}, {0}), g = bench.tensor({1}, {1});
  const auto optimizer = make_optimizer(
      bench.memory, 1, Dtype::f64, {.kind = OptimizerKind::sgd, .momentum = 0.5, .dampening = 0.5});
  optimizer->update(p, g, 1, 1);
  CHECK(values(p)[0] == -1);
  optimizer->update(p, g, 1, 1);
  CHECK(values(p)[0] == -2);  // 0.5 * 1 + (1 - 0.5) * 1
}

}  // namespace zl
