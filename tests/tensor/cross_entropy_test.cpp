#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

struct Problem {
  Tensor logits, targets, loss, dloss;
  int64_t R, V;
};

Problem problem(Cpu& cpu, int64_t R, int64_t V, Dtype dtype, double width = 8) {
  Values values = random_values(R * V, uint64_t(V));
  for (double& v : values) v *= width;
  const Tensor targets = cpu.empty({R}, Dtype::i32);
  for (int64_t r = 0; r < R; ++r)
    targets.data<int32_t>()[size_t(r)] = int32_t((r * 7919 + V - 1) % V);
  const Dtype scalar = statistics_type(dtype);
  return {cpu.of(values, {R, V}, dtype), targets, cpu.nan({1}, scalar),
          cpu.of({0.75}, {1}, scalar),   R,       V};
}

double loss_of(const Problem& p) {
  kernel::cross_entropy(p.logits, p.targets, p.loss);
  return doubles(p.loss)[0];
}

// The same problem in f64, for the reference.
Problem in_f64(Cpu& reference, Problem p) {
  p.logits = reference.of(doubles(p.logits), {p.R, p.V}, Dtype::f64);
  p.loss = reference.nan({1}, Dtype::f64), p.dloss = reference.of({0.75}, {1}, Dtype::f64);
  return p;
}

TEST_CASE("cross_entropy is the mean over rows of log-sum-exp minus the target's logit",
          "[tensor]") {
  Cpu cpu(any_host_backend()), reference(reference_backend());
  const Dtype dtype = any_type();
  for (int64_t V : {2, 3, 15, 16, 17, 65, 256, 1001}) {
    const Problem p = problem(cpu, 5, V, dtype);
    const double tolerance = 20 * compute_epsilon(dtype) * 8;
    CAPTURE(V);
    const Problem exact = in_f64(reference, p);
    CHECK(std::abs(loss_of(p) - loss_of(exact)) < tolerance);
    p.targets.data<int32_t>()[0] = (p.targets.data<int32_t>()[0] + 1) % int32_t(V);
    const double other = loss_of(exact);
    p.targets.data<int32_t>()[0] = (p.targets.data<int32_t>()[0] + int32_t(V) - 1) % int32_t(V);
    CHECK(std::abs(loss_of(p) - other) > tolerance);
  }
}

TEST_CASE("cross_entropy of equal logits is the logarithm of the vocabulary, up to GPT-2's",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const int64_t V = GENERATE(2, 256, 50257);
  const Problem p = problem(cpu, 3, V, Dtype::f32, 0);
  CHECK(std::abs(loss_of(p) - std::log(double(V))) < 2e-6);
}

TEST_CASE("cross_entropy neither overflows nor loses a small loss", "[tensor]") {
  Cpu cpu(any_host_backend());
  Problem p = problem(cpu, 1, 2, Dtype::f32);
  p.targets.data<int32_t>()[0] = 0;
  p.logits = cpu.of({3e38, -3e38}, {1, 2}, Dtype::f32);
  CHECK(loss_of(p) == 0);
  p.logits = cpu.of({-3e38, 1e4}, {1, 2}, Dtype::f32);
  CHECK(std::abs(loss_of(p) / 3e38 - 1) < 1e-6);
  p.logits = cpu.of({10000, 9992}, {1, 2},
                    Dtype::f32);  // the digits of the maximum must not drown those of the loss
  CHECK(std::abs(loss_of(p) - std::log1p(std::exp(-8.0))) < 1e-7);
}

TEST_CASE("one non-finite logit makes loss and gradient NaN, so that no step is taken",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const double bad =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  for (size_t at : {0, 5, 16, 39}) {
    const Problem p = problem(cpu, 2, 20, dtype);
    Values values = doubles(p.logits);
    values[at] = bad;
    const Problem broken{cpu.of(values, {2, 20}, dtype), p.targets, p.loss, p.dloss, 2, 20};
    CHECK(std::isnan(loss_of(broken)));
    kernel::cross_entropy_backward(broken.logits, p.targets, p.dloss, broken.logits);
    CHECK(std::isnan(doubles(broken.logits)[at]));
    CHECK(std::isfinite(doubles(broken.logits)[at < 20 ? 25 : 10]));  // the other row
  }
}

TEST_CASE("cross_entropy_backward is softmax minus one-hot times dloss over rows, also in place",
          "[tensor]") {
  Cpu cpu(any_host_backend()), reference(reference_backend());
  const Dtype dtype = any_type();
  for (int64_t V : {2, 3, 17, 256, 1001}) {
    const Problem p = problem(cpu, 5, V, dtype);
    const Tensor dlogits = cpu.nan({5, V}, dtype);
    kernel::cross_entropy_backward(p.logits, p.targets, p.dloss, dlogits);
    const Problem exact = in_f64(reference, p);
    kernel::cross_entropy_backward(exact.logits, p.targets, exact.dloss, exact.logits);
    const Values d = doubles(dlogits), expected = doubles(exact.logits);
    const double subnormal = dtype == Dtype::f16 ? 0x1p-24 : 0;  // f16's steps below 2^-14
    for (int64_t r = 0; r < 5; ++r) {
      double row_sum = 0;
      for (int64_t v = 0; v < V; ++v) {
        const size_t i = size_t(r * V + v);
        REQUIRE(std::abs(d[i] - expected[i]) <=
                (epsilon(dtype) + 20 * compute_epsilon(dtype)) * std::abs(expected[i]) +
                    4 * compute_epsilon(dtype) + subnormal);
        row_sum += d[i];
      }
      CHECK(std::abs(row_sum) < double(V) * (subnormal + 0.3 * epsilon(dtype)));
    }
    kernel::cross_entropy_backward(p.logits, p.targets, p.dloss, p.logits);
    CHECK(same_bits(p.logits, dlogits));
  }
}

TEST_CASE("a target outside the vocabulary is an error that names target and row", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Problem p = problem(cpu, 2, 4, Dtype::f32);
  const Tensor dlogits = cpu.nan({2, 4}, Dtype::f32);
  for (int32_t target : {4, -1, -100, INT32_MAX}) {
    p.targets.data<int32_t>()[1] = target;
    CHECK_THROWS_AS(kernel::cross_entropy(p.logits, p.targets, p.loss), std::invalid_argument);
    CHECK_THROWS_AS(kernel::cross_entropy_backward(p.logits, p.targets, p.dloss, dlogits),
                    std::invalid_argument);
  }
}

}  // namespace
