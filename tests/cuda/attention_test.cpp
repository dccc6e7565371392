#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/cuda/on_cpu/controls.h"

using namespace zl;
using namespace zl::test;

namespace {

using Values = std::vector<double>;

struct Case {
  int64_t B, T, H, D;
  Dtype dtype = Dtype::f32;
  int64_t C() const { return H * D; }
};

Dtype statistics(const Case& c) { return c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

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
                             s.nan({c.B, c.H, c.T}, statistics(c)), c.H};
  kernel::attention(saved);
  return {values_of(saved.y), values_of(saved.log_sum_exp)};
}

Values backward(Side& s, const Case& c, const Values& qkv, const Output& saved, const Values& dy) {
  const AttentionSaved tensors{s.of(qkv, {c.B, c.T, 3 * c.C()}, c.dtype),
                               s.of(saved.y, {c.B, c.T, c.C()}, c.dtype),
                               s.of(saved.log_sum_exp, {c.B, c.H, c.T}, statistics(c)), c.H};
  const Tensor dqkv = s.nan({c.B, c.T, 3 * c.C()}, c.dtype);
  kernel::attention_backward(tensors, s.of(dy, {c.B, c.T, c.C()}, c.dtype), dqkv);
  return values_of(dqkv);
}

struct Differences {
  double y, log_sum_exp, dqkv;
};

// Both backward passes use the results of the reference's forward pass. They are the GPU's and the
// CPU's, which take sum(dy * y) with the stored y, where the reference adds P * dP.
Differences differences(const Case& c, double scale = 1) {
  Side reference(reference_backend()), cpu(cpu_backend()), gpu(test_gpu());
  const Values qkv = qkv_of(c, scale), dy = dy_of(c);
  const Output expected = forward(reference, c, qkv), output = forward(gpu, c, qkv);
  return {distance(output.y, expected.y), distance(output.log_sum_exp, expected.log_sum_exp),
          distance(backward(gpu, c, qkv, expected, dy), backward(cpu, c, qkv, expected, dy))};
}

void check(const Case& c) {
  CAPTURE(name(c.dtype), c.B, c.T, c.H, c.D);
  const Differences d = differences(c);
  const double allowed = one_rounding(c.dtype);
  CHECK(d.y <= allowed);
  CHECK(d.log_sum_exp <= one_rounding(statistics(c)));
  CHECK(d.dqkv <= allowed);
}

}  // namespace

TEST_CASE("attention on the GPU is that of the CPU at every length and head size", "[cuda]") {
  const Dtype dtype = any_float_type();
  const int64_t T = GENERATE(1, 2, 33, 65, 130);
  for (const int64_t D : {3, 16, 80}) check({1, T, 1, D, dtype});
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
  const Dtype dtype = any_float_type();
  check({2, 66, 3, 5, dtype});
  check({3, 1, 2, 7, dtype});
  check({0, 5, 1, 4, dtype});

  Side gpu(test_gpu());
  for (const int64_t D : {9, 24}) {  // 16-bit heads of 24 channels run on tensor cores
    const Case both{3, 70, 2, D, dtype}, one{1, 70, 2, D, dtype};
    const auto last = [](const Values& all) {
      return Values(all.begin() + ptrdiff_t(all.size() / 3 * 2), all.end());
    };
    const Values qkv = qkv_of(both), dy = dy_of(both);
    const Output output = forward(gpu, both, qkv), alone = forward(gpu, one, last(qkv));
    CHECK(same_bits(alone.y, last(output.y)));
    CHECK(same_bits(alone.log_sum_exp, last(output.log_sum_exp)));
    const Values dqkv = backward(gpu, both, qkv, output, dy);
    CHECK(same_bits(backward(gpu, one, last(qkv), alone, last(dy)), last(dqkv)));
    CHECK(same_bits(backward(gpu, both, qkv, output, dy), dqkv));
    Values other = last(dy);
    other[5] += 0.5;  // the twin
    CHECK_FALSE(same_bits(backward(gpu, one, last(qkv), alone, other), last(dqkv)));
  }
}

TEST_CASE(
    "on the GPU too, what a token attends to does not depend on the tokens after it, bit for bit",
    "[cuda]") {
  const Dtype dtype = any_float_type();
  const int64_t D = GENERATE(9, 16, 72);
  Side gpu(test_gpu());
  const Case whole{1, 130, 2, D, dtype};
  const Values qkv = qkv_of(whole);
  const Output all = forward(gpu, whole, qkv);
  for (const int64_t T : {1, 32, 33, 65, 97}) {
    const Case c{1, T, 2, D, dtype};
    CAPTURE(T, D, name(dtype));
    const Output some = forward(gpu, c, Values(qkv.begin(), qkv.begin() + T * 3 * c.C()));
    CHECK(same_bits(some.y, Values(all.y.begin(), all.y.begin() + T * c.C())));
    for (int64_t head = 0; head < c.H; ++head) {
      const auto *mine = &some.log_sum_exp[size_t(head * T)],
                 *expected = &all.log_sum_exp[size_t(head * whole.T)];
      CHECK(same_bits(Values(mine, mine + T), Values(expected, expected + T)));
    }
  }
}

TEST_CASE("attention on the GPU survives scores that overflow an exponential", "[cuda]") {
  const Case c = GENERATE(Case{1, 66, 1, 4}, Case{1, 66, 1, 8, Dtype::bf16});
  Side gpu(test_gpu());
  const Values qkv = qkv_of(c, 30);
  const Output output = forward(gpu, c, qkv);
  CHECK(*std::max_element(output.log_sum_exp.begin(), output.log_sum_exp.end()) > 1000);
  const Values dqkv = backward(gpu, c, qkv, output, dy_of(c));
  CHECK(distance(dqkv, dqkv) == 0);  // no NaN
  // Scores of 1000 have errors of 1e-4. In bf16 the weights and y have the relative error 2^-9
  // each, values are at most 150, and y may be 0.
  CHECK(differences(c, 30).y < (c.dtype == Dtype::f32 ? 1e-3 : 0.6));
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
  const Dtype dtype = any_float_type();
  const Case c{1, 65, 1, 8, dtype};
  Side cpu(reference_backend()), gpu(test_gpu());
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
  const Case c = GENERATE(Case{1, T, 1, 1}, Case{1, T, 1, 8, Dtype::bf16});
  Side gpu(test_gpu());
  Values qkv(size_t(T * 3 * c.D));
  for (int64_t t = 0; t < T; ++t) {
    qkv[size_t(3 * t * c.D)] = 1e20;
    qkv[size_t((3 * t + 1) * c.D)] = t < first ? -1e20 : 0;
    qkv[size_t((3 * t + 2) * c.D)] = double(t);
  }
  const Values y = forward(gpu, c, qkv).y;
  for (int64_t t = first; t < T; ++t)
    CHECK(std::abs(y[size_t(t * c.D)] - double(first + t) / 2) <
          (c.dtype == Dtype::f32 ? 1e-4 : 0.126));  // half a unit of bf16 at 64
}

namespace {

Values rounded(Values values, Dtype dtype) {
  Side cpu(reference_backend());
  return values_of(cpu.of(values, {int64_t(values.size())}, dtype));
}

}  // namespace

// With the rounding error u of the type: y has 2 u (of its weights, and of y) relative to values of
// up to 4, gradients the same relative to theirs, which are larger with more channels.
TEST_CASE("attention on tensor cores is the formula in double within the rounding of its type",
          "[cuda]") {
  require_gpu();
  const auto [dtype, tf32] =
      GENERATE(table<Dtype, bool>({{Dtype::bf16, false}, {Dtype::f16, false}, {Dtype::f32, true}}));
  // TF32 has the 10 bits of f16: values of f16 are not rounded, weights are.
  const Dtype precision = tf32 ? Dtype::f16 : dtype;
  const auto [T, D] =
      GENERATE(table<int64_t, int64_t>({{1, 64}, {17, 8}, {17, 128}, {65, 80}, {129, 64}}));
  const Case c{1, T, 3, D, dtype};
  CAPTURE(name(dtype), T, D);
  const Values qkv = rounded(qkv_of(c), precision), dy = rounded(dy_of(c), precision);
  const Case exact{1, T, 3, D, Dtype::f64};
  Side reference(reference_backend());
  const Output expected = forward(reference, exact, qkv);
  const Values dqkv = backward(reference, exact, qkv, expected, dy);
  const auto own = tf32 ? gpu_of_rank(0, {.tf32 = true}) : nullptr;
  Side gpu(own ? *own : test_gpu());
  const Output output = forward(gpu, c, qkv);
  CHECK(distance(output.y, expected.y) <= one_rounding(precision));
  CHECK(distance(output.log_sum_exp, expected.log_sum_exp) <= one_rounding(Dtype::f32));
  const Values gradient = backward(gpu, c, qkv, output, dy);
  CHECK(distance(gradient, dqkv) <= tolerance(precision));
  if (tf32 && D <= 64) CHECK((T == 1 || distance(gradient, dqkv) > tolerance(Dtype::f32)));

  Values other = dy;
  other[size_t(c.C() - 1)] += 0.5;  // the twin: of the first token
  CHECK(distance(backward(gpu, c, qkv, output, other), dqkv) > tolerance(precision));
}

TEST_CASE("attention in TF32 rounds its inputs to nearest", "[cuda]") {
  require_gpu();
  const auto gpu = gpu_of_rank(0, {.tf32 = true});
  Side s(*gpu);
  const Case c{1, 1, 1, 8};                       // one token: y is the value
  const double three_quarters = 1 + 3 * 0x1p-12;  // of the way from 1 to the next number in TF32
  CHECK(forward(s, c, Values(24, three_quarters)).y == Values(8, 1 + 0x1p-10));
  CHECK(forward(s, c, Values(24, 1 + 0x1p-12)).y == Values(8, 1));
}

TEST_CASE("code for GPUs before 8.0 has no tensor cores, and attention runs all the same",
          "[cuda][host]") {
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  if (real_gpu()) SKIP("a real GPU has one version");
  const Case c{1, 70, 2, 16, dtype};
  const Values qkv = qkv_of(c), dy = dy_of(c);
  const auto dqkv_at = [&](int ptx_version) {
    const cuda_on_cpu::EmulatedMachine machine({.ptx_version = ptx_version});
    Side gpu(test_gpu());
    const Output output = forward(gpu, c, qkv);
    return backward(gpu, c, qkv, output, dy);
  };
  const Values old = dqkv_at(75), tensor_cores = dqkv_at(80);
  CHECK(distance(old, tensor_cores) <= tolerance(dtype));
  CHECK_FALSE(same_bits(old, tensor_cores));  // weights are rounded only for tensor cores
  CHECK(same_bits(tensor_cores, dqkv_at(90)));
}
