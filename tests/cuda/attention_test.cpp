#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Case {
  int64_t B, T, H, D;
  Dtype dtype = Dtype::f32;
  int64_t C() const { return H * D; }
  Dtype statistics() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
};
using Values = std::vector<double>;

Values qkv_of(const Case& c, double scale = 1) {
  return random_values(c.B * c.T * 3 * c.C(), 1, scale);
}
Values dy_of(const Case& c) { return random_values(c.B * c.T * c.C(), 2); }

struct Output {
  Values y, log_sum_exp;
};

Output forward(Side& s, const Case& c, const Values& qkv) {
  const AttentionSaved saved{s.of(qkv, {c.B, c.T, 3 * c.C()}, c.dtype),
                             s.nan({c.B, c.T, c.C()}, c.dtype),
                             s.nan({c.B, c.H, c.T}, c.statistics()), c.H};
  kernel::attention(saved);
  return {values_of(saved.y), values_of(saved.log_sum_exp)};
}

Values backward(Side& s, const Case& c, const Values& qkv, const Output& saved, const Values& dy) {
  const AttentionSaved tensors{s.of(qkv, {c.B, c.T, 3 * c.C()}, c.dtype),
                               s.of(saved.y, {c.B, c.T, c.C()}, c.dtype),
                               s.of(saved.log_sum_exp, {c.B, c.H, c.T}, c.statistics()), c.H};
  const Tensor dqkv = s.nan({c.B, c.T, 3 * c.C()}, c.dtype);
  kernel::attention_backward(tensors, s.of(dy, {c.B, c.T, c.C()}, c.dtype), dqkv);
  return values_of(dqkv);
}

struct Differences {
  double y, log_sum_exp, dqkv;
};

// Both backward passes use the results of the CPU's forward pass.
Differences differences(const Case& c, double scale = 1) {
  Side cpu(cpu_backend()), gpu(test_gpu());
  const Values qkv = qkv_of(c, scale), dy = dy_of(c);
  const Output expected = forward(cpu, c, qkv), output = forward(gpu, c, qkv);
  return {distance(output.y, expected.y), distance(output.log_sum_exp, expected.log_sum_exp),
          distance(backward(gpu, c, qkv, expected, dy), backward(cpu, c, qkv, expected, dy))};
}

// Half of the difference that other kernels may have.
double one_rounding(Dtype dtype) { return tolerance(dtype) / 2; }

void check(const Case& c) {
  CAPTURE(name(c.dtype), c.B, c.T, c.H, c.D);
  const Differences d = differences(c);
  const double allowed = one_rounding(c.dtype);
  CHECK(d.y <= allowed);
  CHECK(d.log_sum_exp <= one_rounding(c.statistics()));
  CHECK(d.dqkv <= allowed);
}

}  // namespace

TEST_CASE("attention on the GPU is that of the CPU at every length and head size", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int64_t T = GENERATE(1, 2, 7, 33, 65, 130);
  for (const int64_t D : {1, 3, 16, 64, 80}) check({1, T, 1, D, dtype});
}

TEST_CASE("attention on the GPU supports heads of up to 256 channels, and its error says so",
          "[cuda]") {
  for (const Dtype dtype : kFloatTypes) {
    check({1, 67, 1, 256, dtype});
    check({1, 35, 2, 129, dtype});
  }
  Side gpu(test_gpu());
  const Case wide{1, 2, 1, 257};
  CHECK_THROWS_AS(forward(gpu, wide, qkv_of(wide)), std::invalid_argument);
}

TEST_CASE("attention on the GPU does not mix batches or heads", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  check({2, 66, 3, 5, dtype});
  check({3, 1, 2, 7, dtype});
  check({0, 5, 1, 4, dtype});

  Side gpu(test_gpu());
  const Case both{2, 70, 2, 9, dtype}, one{1, 70, 2, 9, dtype};
  const Values qkv = qkv_of(both), last(qkv.begin() + 70 * 3 * both.C(), qkv.end());
  const Values y = forward(gpu, both, qkv).y, alone = forward(gpu, one, last).y;
  CHECK(same_bits(alone, Values(y.begin() + 70 * both.C(), y.end())));
}

TEST_CASE(
    "on the GPU too, what a token attends to does not depend on the tokens after it, bit for bit",
    "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  Side gpu(test_gpu());
  const Case whole{1, 130, 2, 9, dtype};
  const Values qkv = qkv_of(whole), y = forward(gpu, whole, qkv).y;
  for (const int64_t T : {1, 2, 33, 64, 65, 100}) {
    const Case c{1, T, 2, 9, dtype};
    const Values some(qkv.begin(), qkv.begin() + T * 3 * c.C());
    CHECK(same_bits(forward(gpu, c, some).y, Values(y.begin(), y.begin() + T * c.C())));
  }
}

TEST_CASE("attention on the GPU survives scores that overflow an exponential", "[cuda]") {
  const Case c{1, 66, 1, 4};
  Side gpu(test_gpu());
  const Values qkv = qkv_of(c, 30);
  const Output output = forward(gpu, c, qkv);
  CHECK(*std::max_element(output.log_sum_exp.begin(), output.log_sum_exp.end()) > 1000);
  const Values dqkv = backward(gpu, c, qkv, output, dy_of(c));
  CHECK(distance(dqkv, dqkv) == 0);    // no NaN
  CHECK(differences(c, 30).y < 1e-3);  // scores of 1000 have errors of 1e-4
}

TEST_CASE("attention on the GPU holds no T by T matrix and asks for one number per query",
          "[cuda]") {
  require_gpu();
  const auto bytes = [](KernelId kernel, Dtype dtype) {
    return test_gpu().workspace(kernel, std::array<int64_t, 4>{2, 8192, 3, 64}, dtype);
  };
  CHECK(bytes(KernelId::attention, Dtype::bf16) == 0);
  CHECK(bytes(KernelId::attention_backward, Dtype::bf16) == 2 * 3 * 8192 * 4);
  CHECK(bytes(KernelId::attention_backward, Dtype::f64) == 2 * 3 * 8192 * 8);
}

TEST_CASE("one key that the GPU saw and the CPU did not is noticed in attention and its gradient",
          "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const Case c{1, 65, 1, 8, dtype};
  Side cpu(cpu_backend()), gpu(test_gpu());
  const Values qkv = qkv_of(c), dy = dy_of(c);
  Values broken = qkv;
  broken[size_t(64 * 3 * c.C() + c.C())] += 2;  // of the last token, which only the last query sees
  const Output expected = forward(cpu, c, qkv), output = forward(gpu, c, broken);
  CHECK(distance(output.y, expected.y) > one_rounding(dtype));
  const Values y = forward(gpu, c, qkv).y;
  CHECK(same_bits(Values(output.y.begin(), output.y.end() - c.C()),
                  Values(y.begin(), y.end() - c.C())));
  CHECK(distance(backward(gpu, c, broken, expected, dy), backward(cpu, c, qkv, expected, dy)) >
        one_rounding(dtype));
}

TEST_CASE(
    "on the GPU keys with scores of -infinity have weight 0, also if they fill the first tile",
    "[cuda]") {
  constexpr int64_t T = 70, first = 64;  // the keys from `first` have the score 0
  Side gpu(test_gpu());
  Values qkv(T * 3);
  for (int64_t t = 0; t < T; ++t) {
    qkv[size_t(3 * t)] = 1e20;
    qkv[size_t(3 * t + 1)] = t < first ? -1e20 : 0;
    qkv[size_t(3 * t + 2)] = double(t);
  }
  const Values y = forward(gpu, {1, T, 1, 1}, qkv).y;
  for (int64_t t = first; t < T; ++t) CHECK(std::abs(y[size_t(t)] - double(first + t) / 2) < 1e-4);
}
