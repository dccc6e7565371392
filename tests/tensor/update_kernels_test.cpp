// One update by a kernel in every mix of types. What a range of an update writes, and many steps,
// tests/optim shows.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

struct UpdateCase {
  Dtype parameter = Dtype::f32, gradient = Dtype::f32;
  bool master = false;
  int64_t n = 33;
};

Values squared(Values values) {
  for (double& v : values) v *= v;
  return values;
}

// An update of n elements with random tensors; it is step 3.
OptimizerUpdate update_of(Cpu& cpu, const UpdateCase& c) {
  const Dtype state = statistics_type(c.parameter);
  OptimizerUpdate u{cpu.of(random_values(c.n, 1), {c.n}, c.parameter),
                    cpu.of(random_values(c.n, 2), {c.n}, c.gradient),
                    cpu.of(random_values(c.n, 3), {c.n}, state),
                    cpu.of(squared(random_values(c.n, 4)), {c.n}, state)};
  if (c.master) u.master = cpu.of(random_values(c.n, 5), {c.n}, state);
  u.gradient_scale = 0.5;
  u.config = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
  u.step = 3;
  return u;
}

struct State {
  double p, m, v;
};

// Loshchilov & Hutter, algorithm 2, in double.
State reference(const OptimizerUpdate& u, State s, double g) {
  const OptimizerConfig& c = u.config;
  const auto correction = [&](double beta) { return 1 - std::pow(beta, double(u.step)); };
  g *= u.gradient_scale;
  if (!c.decoupled) g += c.weight_decay * s.p;
  s.m = c.beta1 * s.m + (1 - c.beta1) * g;
  s.v = c.beta2 * s.v + (1 - c.beta2) * g * g;
  const double step = s.m / correction(c.beta1) / (std::sqrt(s.v / correction(c.beta2)) + c.eps);
  return {s.p - c.lr * step - (c.decoupled ? c.lr * c.weight_decay * s.p : 0), s.m, s.v};
}

TEST_CASE(
    "one adamw update is algorithm 2 of the paper in every type, with and without a master copy",
    "[tensor]") {
  Cpu cpu(any_host_backend());
  // Not any_type() twice: Catch2 would take it for one generator.
  const Dtype parameter = any_type(), gradient = GENERATE(from_range(kTypes));
  const bool master = GENERATE(false, true), decoupled = GENERATE(true, false);
  OptimizerUpdate u = update_of(cpu, {parameter, gradient, master});
  u.config.decoupled = decoupled;
  const Values p = doubles(master ? u.master : u.parameter), g = doubles(u.gradient),
               m = doubles(u.moment), v = doubles(u.exp_avg_sq);
  kernel::update_parameters(u);
  const Values new_p = doubles(master ? u.master : u.parameter), new_m = doubles(u.moment),
               new_v = doubles(u.exp_avg_sq);
  const double eps = compute_epsilon(parameter), stored = master ? eps : epsilon(parameter);
  double wrong = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const State s = reference(u, {p[i], m[i], v[i]}, g[i]);
    REQUIRE(std::abs(new_m[i] - s.m) <= 4 * eps);
    REQUIRE(std::abs(new_v[i] - s.v) <= 4 * eps * s.v);
    REQUIRE(std::abs(new_p[i] - s.p) <=
            stored * std::max(1.0, std::abs(s.p)) + 0.1 * eps / std::sqrt(s.v));
    OptimizerUpdate other = u;
    other.config.decoupled = !decoupled;
    wrong = std::max(wrong, std::abs(new_p[i] - reference(other, {p[i], m[i], v[i]}, g[i]).p));
  }
  if (stored < 1e-3) CHECK(wrong > 1e-4);  // the two kinds of decay differ
  if (master) CHECK(same_bits(u.parameter, cpu.of(new_p, {33}, parameter)));
}

TEST_CASE("zeros stay zero under adamw, so padding never grows", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  OptimizerUpdate u = update_of(cpu, {dtype, dtype, false, 19});
  for (const Tensor* t : {&u.parameter, &u.gradient, &u.moment, &u.exp_avg_sq}) kernel::fill(0, *t);
  for (int step = 0; step < 3; ++step) kernel::update_parameters(u);
  CHECK(doubles(u.parameter) == Values(19));
  CHECK(doubles(u.exp_avg_sq) == Values(19));
}

TEST_CASE("adamw refuses gradients and state that do not fit the parameter", "[tensor]") {
  Cpu cpu(any_host_backend());
  OptimizerUpdate u = update_of(cpu, {});
  u.gradient = u.gradient.slice(0, {32});
  CHECK_THROWS_AS(kernel::update_parameters(u), std::invalid_argument);
  u = update_of(cpu, {});
  u.exp_avg_sq = cpu.nan({33}, Dtype::bf16);
  CHECK_THROWS_AS(kernel::update_parameters(u), std::invalid_argument);
  u.exp_avg_sq = {};
  CHECK_THROWS_AS(kernel::update_parameters(u), std::invalid_argument);
}

// What sgd computes: tests/optim/formula_test.cpp.
TEST_CASE("sgd with momentum but without a buffer is refused", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Tensor four = cpu.of({1, 1, 1, 1}, {4}, Dtype::f32);
  const OptimizerUpdate u{four, four, {}, {}, {}, {.kind = OptimizerKind::sgd, .momentum = 0.9}};
  CHECK_THROWS_AS(kernel::update_parameters(u), std::invalid_argument);
}

}  // namespace
