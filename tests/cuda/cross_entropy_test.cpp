#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

// Logits, and the target of each row.
struct LossCase {
  int64_t R, V;
  Dtype dtype;
  std::vector<double> logits = random_values(R * V, 1, 4);
  std::vector<int32_t> targets = [this] {
    std::vector<int32_t> t(size_t(R), 0);
    for (int64_t r = 0; r < R; ++r) t[size_t(r)] = int32_t((r * 7919 + V - 1) % V);
    return t;
  }();
  Dtype statistics() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};

double loss_of(Side& s, const LossCase& c) {
  const Tensor loss = s.nan({1}, c.statistics());
  kernel::cross_entropy(s.of(c.logits, {c.R, c.V}, c.dtype), s.of(c.targets, {c.R}), loss);
  return values_of(loss)[0];
}

std::vector<double> gradient(Side& s, const LossCase& c, bool in_place = false) {
  const Tensor logits = s.of(c.logits, {c.R, c.V}, c.dtype),
               out = in_place ? logits : s.nan({c.R, c.V}, c.dtype);
  kernel::cross_entropy_backward(logits, s.of(c.targets, {c.R}), s.of({0.75}, {1}, c.statistics()),
                                 out);
  return values_of(out);
}

}  // namespace

TEST_CASE("cross-entropy on the GPU is that of the CPU, and its gradient, also in place",
          "[cuda]") {
  const Dtype dtype = any_float_type();
  const int64_t R = GENERATE(1, 17), V = GENERATE(1, 2, 11, 255, 256, 257, 1000);
  const LossCase c{R, V, dtype};
  CAPTURE(name(dtype), R, V);
  Side cpu(reference_backend()), gpu(test_gpu());
  CHECK(std::abs(loss_of(gpu, c) - loss_of(cpu, c)) <= one_rounding(c.statistics()));
  const std::vector<double> expected = gradient(cpu, c), result = gradient(gpu, c);
  CHECK(distance(result, expected) <=
        one_rounding(dtype) / double(R));  // gradients are less than 1 / R
  CHECK(same_bits(gradient(gpu, c, true), result));
}

TEST_CASE("the GPU adds the losses of more rows than a block has threads", "[cuda]") {
  const LossCase c{300, 3, Dtype::f32};
  Side cpu(reference_backend()), gpu(test_gpu());
  CHECK(std::abs(loss_of(gpu, c) - loss_of(cpu, c)) < 1e-6);
  LossCase other = c;
  other.targets.back() = (c.targets.back() + 1) % 3;
  CHECK(std::abs(loss_of(gpu, other) - loss_of(cpu, c)) > 1e-6);
}

TEST_CASE(
    "the loss of equal and of extreme logits on the GPU is the CPU's, up to GPT-2's vocabulary",
    "[cuda]") {
  const auto equal = [](int64_t V) {
    return LossCase{3, V, Dtype::f32, std::vector<double>(size_t(3 * V), 5.0)};
  };
  const auto two = [](double at_target, double other) {
    return LossCase{1, 2, Dtype::f32, {at_target, other}, {0}};
  };
  const LossCase c = GENERATE_COPY(equal(2), equal(256), equal(50257), two(3e38, -3e38),
                                   two(-3e38, 1e4), two(10000, 9992));
  Side cpu(reference_backend()), gpu(test_gpu());
  const double expected = loss_of(cpu, c);  // tests/tensor/cross_entropy_test.cpp
  CHECK(std::abs(loss_of(gpu, c) - expected) <= (expected < 1e-3 ? 3e-4 : 4e-7) * expected);
}

TEST_CASE(
    "on the GPU a logit that is no number, and a target outside the vocabulary, make loss and "
    "gradient NaN",
    "[cuda]") {
  const Dtype dtype = any_float_type();
  Side gpu(test_gpu());
  const auto check = [&](const LossCase& c) {
    CHECK(std::isnan(loss_of(gpu, c)));
    const std::vector<double> d = gradient(gpu, c, true);
    CHECK(std::isnan(d[25]));
    CHECK(std::isfinite(d[5]));  // the other row
  };
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    LossCase c{2, 20, dtype};
    c.logits[25] = bad;
    check(c);
  }
  for (const int32_t target : {-1, 20, INT32_MIN, INT32_MAX}) {
    LossCase c{2, 20, dtype};
    c.targets[1] = target;
    check(c);
  }
}

TEST_CASE("another target on the GPU than on the CPU is noticed in loss and gradient", "[cuda]") {
  const Dtype dtype = any_float_type();
  const LossCase c{17, 11, dtype};
  LossCase broken = c;
  broken.targets[16] = (broken.targets[16] + 1) % 11;
  Side cpu(reference_backend()), gpu(test_gpu());
  CHECK(std::abs(loss_of(gpu, broken) - loss_of(cpu, c)) > one_rounding(c.statistics()));
  CHECK(distance(gradient(gpu, broken), gradient(cpu, c)) > one_rounding(dtype) / 17);
}
