// AdamW and SGD against numbers written down from their formulas, in double.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/optim/flat_values.h"

namespace zl {
namespace {

constexpr int64_t n = 37;

// Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2, with eps where torch adds it; line 12's
// decay is p *= 1 - lr wd.
std::vector<double> adamw_in_double(Workbench& bench, const OptimizerConfig& c, int64_t steps,
                                    Types types) {
  std::vector<double> m(size_t(n), 0.0), v(size_t(n), 0.0);
  return run_in_double(bench, n, steps, types, [&](int64_t i, double p, double g, int64_t t) {
    if (!c.decoupled) g += c.weight_decay * p;
    if (c.decoupled) p -= c.lr * c.weight_decay * p;
    double& mi = m[size_t(i)];
    double& vi = v[size_t(i)];
    mi = c.beta1 * mi + (1 - c.beta1) * g;
    vi = c.beta2 * vi + (1 - c.beta2) * g * g;
    const double m_hat = c.bias_correction ? mi / (1 - std::pow(c.beta1, double(t))) : mi;
    const double v_hat = c.bias_correction ? vi / (1 - std::pow(c.beta2, double(t))) : vi;
    return p - c.lr * m_hat / (std::sqrt(v_hat) + c.eps);
  });
}

// torch.optim.SGD.
std::vector<double> sgd_in_double(Workbench& bench, const OptimizerConfig& c, int64_t steps,
                                  Types types) {
  std::vector<double> buffer(size_t(n), 0.0);
  return run_in_double(bench, n, steps, types, [&](int64_t i, double p, double g, int64_t t) {
    g += c.weight_decay * p;
    if (c.momentum != 0) {
      double& b = buffer[size_t(i)];
      b = t == 1 ? g : c.momentum * b + (1 - c.dampening) * g;
      g = c.nesterov ? g + c.momentum * b : b;
    }
    return p - c.lr * g;
  });
}

// Both optimizers, with the same numbers as a formula in double.
void check_formula(Workbench& bench, const OptimizerConfig& c, double bound) {
  for (const Types types : {Types{Dtype::f64, Dtype::f64},
                            {Dtype::f32, Dtype::f32},
                            {Dtype::f32, Dtype::bf16},
                            {Dtype::f32, Dtype::f64},
                            {Dtype::bf16, Dtype::bf16},
                            {Dtype::f16, Dtype::f16},
                            {Dtype::bf16, Dtype::f32}}) {
    CAPTURE(name(types.parameter), name(types.gradient));
    const auto expected = c.kind == OptimizerKind::adamw ? adamw_in_double(bench, c, 100, types)
                                                         : sgd_in_double(bench, c, 100, types);
    const Run run = run_optimizer(bench, c, n, 100, types.parameter, types.gradient);
    // The master copy makes 16-bit types as exact as fp32.
    CHECK(largest_difference(run.master.empty() ? run.parameters : run.master, expected) <
          (types.parameter == Dtype::f64 ? bound : 1e-5));
    if (!run.master.empty())
      CHECK(run.parameters == values(bench.tensor({n}, run.master, types.parameter)));
  }
}

}  // namespace

TEST_CASE("AdamW follows the paper's formula over 100 steps", "[optim]") {
  Workbench bench;
  OptimizerConfig c{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95};
  c.weight_decay = GENERATE(0.0, 0.1);
  c.bias_correction = GENERATE(true, false);
  c.decoupled = GENERATE(true, false);
  CAPTURE(c.weight_decay, c.bias_correction, c.decoupled);
  check_formula(bench, c, 1e-12);
}

TEST_CASE("SGD follows torch's formula over 100 steps in all its variants", "[optim]") {
  Workbench bench;
  OptimizerConfig c = GENERATE(
      OptimizerConfig{.kind = OptimizerKind::sgd, .lr = 0.01},
      OptimizerConfig{.kind = OptimizerKind::sgd, .lr = 0.01, .momentum = 0.9},
      OptimizerConfig{.kind = OptimizerKind::sgd, .lr = 0.01, .momentum = 0.9, .dampening = 0.3},
      OptimizerConfig{.kind = OptimizerKind::sgd, .lr = 0.01, .momentum = 0.9, .nesterov = true});
  c.weight_decay = GENERATE(0.0, 0.1);
  CAPTURE(c.weight_decay, c.momentum, c.dampening, c.nesterov);
  check_formula(bench, c, 1e-13);
}

TEST_CASE("each setting of an optimizer changes the result", "[optim]") {
  Workbench bench;
  const OptimizerConfig adamw{.lr = 0.01, .weight_decay = 0.1};
  const OptimizerConfig sgd{
      .kind = OptimizerKind::sgd, .lr = 0.01, .weight_decay = 0.1, .momentum = 0.9};
  const auto moved = [&](const OptimizerConfig& plain, auto change) {
    OptimizerConfig other = plain;
    change(other);
    return largest_difference(run_optimizer(bench, plain, n, 10).parameters,
                              run_optimizer(bench, other, n, 10).parameters);
  };
  CHECK(moved(adamw, [](OptimizerConfig&) {}) == 0);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.lr = 0.02; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.weight_decay = 0; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.beta1 = 0.8; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.beta2 = 0.99; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.eps = 1e-3; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.bias_correction = false; }) > 1e-5);
  CHECK(moved(adamw, [](OptimizerConfig& c) { c.decoupled = false; }) > 1e-5);
  CHECK(moved(sgd, [](OptimizerConfig& c) { c.lr = 0.02; }) > 1e-4);
  CHECK(moved(sgd, [](OptimizerConfig& c) { c.weight_decay = 0; }) > 1e-4);
  CHECK(moved(sgd, [](OptimizerConfig& c) { c.momentum = 0.8; }) > 1e-4);
  CHECK(moved(sgd, [](OptimizerConfig& c) { c.dampening = 0.3; }) > 1e-4);
  CHECK(moved(sgd, [](OptimizerConfig& c) { c.nesterov = true; }) > 1e-4);
}

TEST_CASE("a gradient scale of one half equals gradients halved beforehand, bit for bit",
          "[optim]") {
  Workbench bench;
  const OptimizerKind kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  const auto run = [&](double factor, float scale) {
    const Tensor p = Tensor::zeros(bench.memory, MemoryUse::parameter, {n});
    FlatOptimizer optimizer(bench.memory, n, Dtype::f32, {.kind = kind, .momentum = 0.9});
    for (int64_t s = 0; s < 5; ++s) {
      auto g = gradient_values(n, s);
      for (double& x : g) x *= factor;
      optimizer.update(p, bench.tensor({n}, g, Dtype::f32), 0.01, scale);
    }
    return values(p);
  };
  CHECK(run(1, 0.5f) == run(0.5, 1));
  CHECK(run(1, 0.5f) != run(1, 1));
}

TEST_CASE("the rate is that of the call, not of the configuration", "[optim]") {
  Workbench bench;
  const auto after = [&](double configured, double given) {
    const Tensor p = bench.tensor({3}, {1, 2, 3});
    FlatOptimizer(bench.memory, 3, Dtype::f64, {.lr = configured})
        .update(p, bench.tensor({3}, {1, 1, 1}), given, 1);
    return values(p);
  };
  CHECK(after(0.1, 0.01) == after(0.5, 0.01));
  CHECK(after(0.1, 0.01) != after(0.1, 0.02));
  CHECK(after(0.1, 0) == std::vector<double>{1, 2, 3});
}

}  // namespace zl
