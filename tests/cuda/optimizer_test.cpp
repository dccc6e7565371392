#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 1025};

struct UpdateCase {
  Dtype parameter = Dtype::f32, gradient = Dtype::f32;
  bool master = false;
  int64_t n = 1025;
  Dtype state() const { return parameter == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};

OptimizerUpdate adamw_of(Side& s, const UpdateCase& c) {
  std::vector<double> second = random_values(c.n, 4);
  for (double& v : second) v *= v;
  OptimizerUpdate u{s.of(random_values(c.n, 1), {c.n}, c.parameter),
                    s.of(random_values(c.n, 2), {c.n}, c.gradient),
                    s.of(random_values(c.n, 3), {c.n}, c.state()), s.of(second, {c.n}, c.state())};
  if (c.master) u.master = s.of(random_values(c.n, 5), {c.n}, c.state());
  u.gradient_scale = 0.3f;
  u.config = {.lr = 0.01, .weight_decay = 0.1, .beta2 = 0.95, .eps = 1e-6};
  u.step = 3;
  return u;
}

std::vector<double> three_steps(OptimizerUpdate u) {
  for (int step = 0; step < 3; ++step) kernel::update_parameters(u);
  return values_of({u.parameter, u.master, u.moment, u.exp_avg_sq});
}

OptimizerUpdate sgd_of(Side& s, const UpdateCase& c, double momentum) {
  OptimizerUpdate u{s.of(random_values(c.n, 1), {c.n}, c.parameter),
                    s.of(random_values(c.n, 2), {c.n}, c.gradient)};
  if (momentum != 0) u.moment = s.nan({c.n}, c.state());
  if (c.master) u.master = s.of(random_values(c.n, 5), {c.n}, c.state());
  u.gradient_scale = 0.3f;
  u.config.kind = OptimizerKind::sgd, u.config.lr = 0.1, u.config.weight_decay = 0.01;
  u.config.momentum = momentum, u.config.dampening = 0.1;
  return u;
}

}  // namespace

TEST_CASE("on the GPU adamw has the bits of the CPU for every pair of types", "[cuda]") {
  SettingsRow pick = any_pair({4, 4, 2, 2});
  const Dtype parameter = next_float_type(pick), gradient = next_float_type(pick);
  const bool master = pick.next({false, true}), decoupled = pick.next({true, false});
  CAPTURE(name(parameter), name(gradient), master, decoupled);
  for (const int64_t n : kSizes) {
    const auto [cpu, gpu] = on_both([&](Side& s) {
      OptimizerUpdate u = adamw_of(s, {parameter, gradient, master, n});
      u.config.decoupled = decoupled;
      return three_steps(u);
    });
    CAPTURE(n);
    CHECK(same_bits(gpu, cpu));
  }
}

TEST_CASE("on the GPU sgd has the bits of the CPU for every pair of types", "[cuda]") {
  SettingsRow pick = any_pair({4, 4, 2, 2, 2});
  const Dtype parameter = next_float_type(pick), gradient = next_float_type(pick);
  const bool master = pick.next({false, true}), nesterov = pick.next({false, true});
  const double momentum = pick.next({0.0, 0.9});
  CAPTURE(name(parameter), name(gradient), master, nesterov, momentum);
  for (const int64_t n : kSizes) {
    const auto [cpu, gpu] = on_both([&](Side& s) {
      OptimizerUpdate u = sgd_of(s, {parameter, gradient, master, n}, momentum);
      u.config.nesterov = nesterov;
      for (u.step = 1; u.step <= 3; ++u.step) kernel::update_parameters(u);
      return values_of({u.parameter, u.master, u.moment});
    });
    CAPTURE(n);
    CHECK(same_bits(gpu, cpu));
  }
}

TEST_CASE("on the GPU updating a slice gives the bits of a full update", "[cuda]") {
  Side s(test_gpu());
  const OptimizerUpdate whole = adamw_of(s, {}), parts = adamw_of(s, {});
  const auto part = [&](int64_t begin, int64_t n) {
    OptimizerUpdate u = parts;
    for (Tensor* t : {&u.parameter, &u.gradient, &u.moment, &u.exp_avg_sq})
      *t = t->slice(begin, {n});
    return u;
  };
  kernel::update_parameters(whole);
  kernel::update_parameters(part(0, 333));
  CHECK_FALSE(same_bits(values_of(parts.parameter), values_of(whole.parameter)));
  kernel::update_parameters(part(333, 1025 - 333));
  CHECK(same_bits(values_of(parts.parameter), values_of(whole.parameter)));
}

TEST_CASE(
    "an optimizer that rounds elsewhere has other bits, so the equalities above compare something",
    "[cuda]") {
  const auto [cpu, gpu] = on_both([](Side& s) {
    OptimizerUpdate u = adamw_of(s, {});
    if (!s.memory.backend().host_addressable())
      u.config.eps *= 1 + 1e-3;  // moves the last bits of a few elements alone
    return three_steps(u);
  });
  CHECK_FALSE(same_bits(gpu, cpu));
  CHECK(distance(gpu, cpu) < tolerance(Dtype::f32));
}
