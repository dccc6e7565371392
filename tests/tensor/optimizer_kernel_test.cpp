#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"
#include "tests/tensor/same_bits.h"

namespace {

using namespace zl;
using namespace zl::test;

Dtype any_type() { return GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64); }

struct Case {
  Dtype parameter = Dtype::f32, gradient = Dtype::f32;
  bool master = false;
  int64_t n = 33, offset = 0;
};

Values squared(Values values) {
  for (double& v : values) v *= v;
  return values;
}

// An update of n elements with random tensors; the bias corrections are those of
// step 3.
AdamWUpdate update_of(Cpu& cpu, const Case& c) {
  const Dtype state = statistics_type(c.parameter);
  AdamWUpdate u{cpu.of(random_values(c.n, 1), {c.n}, c.parameter, c.offset),
                cpu.of(random_values(c.n, 2), {c.n}, c.gradient, c.offset),
                cpu.of(random_values(c.n, 3), {c.n}, state, c.offset),
                cpu.of(squared(random_values(c.n, 4)), {c.n}, state, c.offset)};
  if (c.master) u.master = cpu.of(random_values(c.n, 5), {c.n}, state, c.offset);
  u.gradient_scale = 0.5;
  u.lr = 0.01, u.beta1 = 0.9, u.beta2 = 0.95, u.eps = 1e-6, u.weight_decay = 0.1;
  u.correction1 = 1 - std::pow(0.9, 3), u.correction2 = 1 - std::pow(0.95, 3);
  return u;
}

struct State {
  double p, m, v;
};

// Loshchilov & Hutter, algorithm 2, in double.
State reference(const AdamWUpdate& u, State s, double g) {
  g *= u.gradient_scale;
  if (!u.decoupled) g += u.weight_decay * s.p;
  s.m = u.beta1 * s.m + (1 - u.beta1) * g;
  s.v = u.beta2 * s.v + (1 - u.beta2) * g * g;
  const double step = s.m / u.correction1 / (std::sqrt(s.v / u.correction2) + u.eps);
  return {s.p - u.lr * step - (u.decoupled ? u.lr * u.weight_decay * s.p : 0), s.m, s.v};
}

TEST_CASE(
    "one adamw update is algorithm 2 of the paper in every type, with and without a master copy",
    "[tensor]") {
  Cpu cpu;
  const Dtype parameter = any_type(), gradient = any_type();
  const bool master = GENERATE(false, true), decoupled = GENERATE(true, false);
  AdamWUpdate u = update_of(cpu, {parameter, gradient, master});
  u.decoupled = decoupled;
  const Values p = doubles(master ? u.master : u.parameter), g = doubles(u.gradient),
               m = doubles(u.exp_avg), v = doubles(u.exp_avg_sq);
  kernel::adamw(u);
  const Values new_p = doubles(master ? u.master : u.parameter), new_m = doubles(u.exp_avg),
               new_v = doubles(u.exp_avg_sq);
  const double eps = compute_epsilon(parameter), stored = master ? eps : epsilon(parameter);
  double wrong = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const State s = reference(u, {p[i], m[i], v[i]}, g[i]);
    REQUIRE(std::abs(new_m[i] - s.m) <= 4 * eps);
    REQUIRE(std::abs(new_v[i] - s.v) <= 4 * eps * s.v);
    REQUIRE(std::abs(new_p[i] - s.p) <=
            stored * std::max(1.0, std::abs(s.p)) + 0.1 * eps / std::sqrt(s.v));
    AdamWUpdate other = u;
    other.decoupled = !decoupled;
    wrong = std::max(wrong, std::abs(new_p[i] - reference(other, {p[i], m[i], v[i]}, g[i]).p));
  }
  if (stored < 1e-3) CHECK(wrong > 1e-4);  // the two kinds of decay differ
  if (master) CHECK(same_bits(u.parameter, cpu.of(new_p, {33}, parameter)));
}

TEST_CASE("100 steps of adamw from zero follow the closed form in double", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::f64);
  const int64_t n = 21;
  AdamWUpdate u{cpu.of(random_values(n, 1), {n}, dtype), cpu.nan({n}, dtype),
                cpu.of(Values(size_t(n)), {n}, dtype), cpu.of(Values(size_t(n)), {n}, dtype)};
  u.weight_decay = 0.05;
  Values p = doubles(u.parameter), gradients[100];
  for (int t = 1; t <= 100; ++t) {
    gradients[t - 1] = doubles(cpu.of(random_values(n, uint64_t(t + 10)), {n}, dtype));
    u.gradient = cpu.of(gradients[t - 1], {n}, dtype);
    u.correction1 = 1 - std::pow(u.beta1, t), u.correction2 = 1 - std::pow(u.beta2, t);
    kernel::adamw(u);
    for (size_t i = 0; i < p.size(); ++i) {
      double m = 0, v = 0;  // the moments as weighted sums of all gradients so far
      for (int s = 1; s <= t; ++s) {
        const double g = gradients[s - 1][i];
        m += (1 - u.beta1) * std::pow(u.beta1, t - s) * g,
            v += (1 - u.beta2) * std::pow(u.beta2, t - s) * g * g;
      }
      p[i] = p[i] * (1 - u.lr * u.weight_decay) -
             u.lr * (m / u.correction1) / (std::sqrt(v / u.correction2) + u.eps);
    }
  }
  const double tolerance = dtype == Dtype::f64 ? 1e-12 : 2e-5;
  CHECK(largest_difference(doubles(u.parameter), p) < tolerance);
  CHECK(largest_difference(doubles(u.parameter), random_values(n, 1)) > 1e-3);
}

// Every tensor of an update, cut to [begin, begin + n).
AdamWUpdate slice(AdamWUpdate u, int64_t begin, int64_t n) {
  for (Tensor* t : {&u.parameter, &u.gradient, &u.exp_avg, &u.exp_avg_sq, &u.master})
    if (t->defined()) *t = t->slice(begin, {n});
  return u;
}

TEST_CASE(
    "adamw of a range gives the bits of that range of a full update, at every offset and length",
    "[tensor]") {
  Cpu cpu;
  const Case c{any_type(), Dtype::bf16, GENERATE(false, true), 200};
  const AdamWUpdate whole = update_of(cpu, c), fresh = update_of(cpu, c), part = update_of(cpu, c);
  kernel::adamw(whole);
  bool same = true;
  for (int64_t begin = 0; begin < 64; ++begin) {
    for (int64_t n = 0; n <= 130; ++n) {
      const AdamWUpdate a = slice(part, begin, n), before = slice(fresh, begin, n),
                        b = slice(whole, begin, n);
      cpu_backend().copy(before.parameter, a.parameter);
      cpu_backend().copy(before.exp_avg, a.exp_avg);
      cpu_backend().copy(before.exp_avg_sq, a.exp_avg_sq);
      if (c.master) cpu_backend().copy(before.master, a.master);
      cpu_backend().adamw(a);
      same = same && same_bits(a.parameter, b.parameter) && same_bits(a.exp_avg, b.exp_avg) &&
             same_bits(a.exp_avg_sq, b.exp_avg_sq);
      if (c.master) same = same && same_bits(a.master, b.master);
    }
  }
  CHECK(same);
  CHECK_FALSE(same_bits(whole.parameter, fresh.parameter));
  CHECK_FALSE(same_bits(whole.parameter.slice(0, {100}), whole.parameter.slice(1, {100})));
}

TEST_CASE("adamw touches nothing outside its range", "[tensor]") {
  Cpu cpu;
  const AdamWUpdate u = update_of(cpu, {.master = true, .n = 40}),
                    before = update_of(cpu, {.master = true, .n = 40});
  kernel::adamw(slice(u, 9, 22));
  for (const auto& [begin, n] : {std::pair<int64_t, int64_t>{0, 9}, {31, 9}}) {
    const AdamWUpdate a = slice(u, begin, n), b = slice(before, begin, n);
    CHECK((same_bits(a.parameter, b.parameter) && same_bits(a.exp_avg, b.exp_avg)));
    CHECK((same_bits(a.exp_avg_sq, b.exp_avg_sq) && same_bits(a.master, b.master)));
  }
  CHECK(same_bits(u.gradient, before.gradient));
  CHECK_FALSE(same_bits(slice(u, 9, 22).master, slice(before, 9, 22).master));
}

TEST_CASE("zeros stay zero under adamw, so padding never grows", "[tensor]") {
  Cpu cpu;
  const Dtype dtype = any_type();
  AdamWUpdate u = update_of(cpu, {dtype, dtype, false, 19});
  for (const Tensor* t : {&u.parameter, &u.gradient, &u.exp_avg, &u.exp_avg_sq})
    kernel::fill(0, *t);
  for (int step = 0; step < 3; ++step) kernel::adamw(u);
  CHECK(doubles(u.parameter) == Values(19));
  CHECK(doubles(u.exp_avg_sq) == Values(19));
}

TEST_CASE("a master copy preserves updates that a 16-bit parameter would round away", "[tensor]") {
  Cpu cpu;
  const auto train = [&](bool master) {
    AdamWUpdate u{cpu.of({1}, {1}, Dtype::bf16), cpu.of({1}, {1}, Dtype::bf16),
                  cpu.of({0}, {1}, Dtype::f32), cpu.of({0}, {1}, Dtype::f32)};
    if (master) u.master = cpu.of({1}, {1}, Dtype::f32);
    for (int t = 1; t <= 20; ++t) {
      u.correction1 = 1 - std::pow(u.beta1, t), u.correction2 = 1 - std::pow(u.beta2, t);
      kernel::adamw(u);
    }
    return doubles(u.parameter)[0];
  };
  CHECK(train(false) == 1);  // each update of 0.001 is less than half of bf16's step of 0.0039
  CHECK(train(true) < 0.99);
}

TEST_CASE("adamw refuses gradients and state that do not fit the parameter", "[tensor]") {
  Cpu cpu;
  AdamWUpdate u = update_of(cpu, {});
  u.gradient = u.gradient.slice(0, {32});
  CHECK_THROWS_AS(kernel::adamw(u), std::invalid_argument);
  u = update_of(cpu, {});
  u.exp_avg_sq = cpu.nan({33}, Dtype::bf16);
  CHECK_THROWS_AS(kernel::adamw(u), std::invalid_argument);
  u.exp_avg_sq = {};
  CHECK_THROWS_AS(kernel::adamw(u), std::invalid_argument);
}

}  // namespace
