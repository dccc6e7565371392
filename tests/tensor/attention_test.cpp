#include <array>
#include <catch2/catch_test_macros.hpp>

#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

struct Case {
  int64_t B, T, H, D;
  Dtype dtype = Dtype::f32;
  int64_t C() const { return H * D; }
};

struct Results {
  Values y, log_sum_exp, dqkv;
  bool operator==(const Results&) const = default;
};

Results run(Cpu& cpu, const Case& c, const Values& qkv, const Values& dy) {
  const AttentionSaved saved{cpu.of(qkv, {c.B, c.T, 3 * c.C()}, c.dtype),
                             cpu.nan({c.B, c.T, c.C()}, c.dtype),
                             cpu.nan({c.B, c.H, c.T}, statistics_type(c.dtype)), c.H};
  const GuardedWorkspace workspace(cpu, KernelId::attention, {c.B, c.T, c.H, c.D}, c.dtype);
  cpu.backend.attention(saved, workspace);
  CHECK(workspace.intact());
  const Tensor dqkv = cpu.nan(saved.qkv.shape(), c.dtype);
  const GuardedWorkspace workspace_backward(cpu, KernelId::attention_backward, {c.B, c.T, c.H, c.D},
                                            c.dtype);
  cpu.backend.attention_backward(saved, cpu.of(dy, {c.B, c.T, c.C()}, c.dtype), dqkv,
                                 workspace_backward);
  CHECK(workspace_backward.intact());
  return {doubles(saved.y), doubles(saved.log_sum_exp), doubles(dqkv)};
}

Values scaled_values(int64_t n, uint64_t seed, double scale) {
  Values values = random_values(n, seed);
  for (double& v : values) v *= scale;
  return values;
}
// Scores of several units, so that the softmax is far from uniform.
Values qkv_of(const Case& c) { return scaled_values(c.B * c.T * 3 * c.C(), 1, 2.0); }
Values dy_of(const Case& c) { return random_values(c.B * c.T * c.C(), 2); }
Values rounded(Cpu& cpu, const Values& v, Dtype dtype) {
  return doubles(cpu.of(v, {int64_t(v.size())}, dtype));
}

TEST_CASE("attention agrees with the reference in f64 in every type, whatever the tile",
          "[tensor]") {
  Cpu cpu(any_host_backend()), exact(reference_backend());
  constexpr std::array<int64_t, 4> sizes[] = {{1, 1, 1, 1},   {2, 1, 3, 5},   {1, 3, 2, 16},
                                              {2, 17, 3, 7},  {1, 63, 1, 8},  {1, 64, 2, 8},
                                              {2, 65, 2, 32}, {1, 131, 3, 11}};
  for (const Dtype dtype : kTypes) {
    for (const auto& [B, T, H, D] : sizes) {
      const Case c{B, T, H, D, dtype};
      CAPTURE(name(dtype), B, T, H, D);
      const Values qkv = rounded(cpu, qkv_of(c), dtype), dy = rounded(cpu, dy_of(c), dtype);
      const Results expected = run(exact, {B, T, H, D, Dtype::f64}, qkv, dy),
                    result = run(cpu, c, qkv, dy);
      // Rounding of storage, and of sums over T keys and D channels.
      const double sums = compute_epsilon(dtype) * double(T + 4 * D + 16);
      CHECK(largest_difference(result.y, expected.y) <=
            (epsilon(dtype) + sums) * size_of_values(expected.y));
      CHECK(largest_difference(result.log_sum_exp, expected.log_sum_exp) <=
            sums * (1 + size_of_values(expected.log_sum_exp)));
      // sum(dy * y) reads the y that was stored, rounded.
      CHECK(largest_difference(result.dqkv, expected.dqkv) <=
            (2 * epsilon(dtype) + sums) * double(D + 2) * size_of_values(expected.dqkv));
      Values broken = qkv;
      broken[0] += 2;
      CHECK(run(cpu, c, broken, dy).log_sum_exp != result.log_sum_exp);
    }
  }
}

TEST_CASE("what a token attends to does not depend on the tokens after it, bit for bit",
          "[tensor]") {
  Cpu cpu;
  for (const Dtype dtype : kTypes) {
    const Case c{1, 150, 2, 9, dtype};
    const Values qkv = qkv_of(c), dy = dy_of(c), whole = run(cpu, c, qkv, dy).y;
    for (const int64_t T : {1, 2, 33, 64, 65, 100}) {
      Case shorter = c;
      shorter.T = T;
      const Values some(qkv.begin(), qkv.begin() + T * 3 * c.C()),
          some_dy(dy.begin(), dy.begin() + T * c.C());
      CHECK(run(cpu, shorter, some, some_dy).y == Values(whole.begin(), whole.begin() + T * c.C()));
    }
    Values changed = qkv;
    changed[size_t(70 * 3 * c.C() + c.C())] += 1;  // a key of token 70
    const Values after = run(cpu, c, changed, dy).y;
    CHECK(std::equal(after.begin(), after.begin() + 70 * c.C(), whole.begin()));
    CHECK(after != whole);
  }
}

TEST_CASE("keys and values after the only query with a gradient get a gradient of exactly zero",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const Case c{1, 80, 1, 4};
  Values dy(size_t(c.T * c.C()), 0.0);
  for (int64_t d = 0; d < c.D; ++d) dy[size_t(20 * c.C() + d)] = 1;
  const Values dqkv = run(cpu, c, qkv_of(c), dy).dqkv;
  double later = 0, earlier = 0;
  for (int64_t t = 0; t < c.T; ++t) {
    for (int64_t i = 0; i < 3 * c.C(); ++i)
      (t > 20 ? later : earlier) += std::abs(dqkv[size_t(t * 3 * c.C() + i)]);
  }
  CHECK(later == 0);
  CHECK(earlier > 0);
}

TEST_CASE("attention has the same bits for every batch size and when repeated", "[tensor]") {
  Cpu cpu;
  for (const Dtype dtype : kTypes) {
    const Case c{3, 70, 2, 13, dtype};
    const Values qkv = qkv_of(c), dy = dy_of(c);
    const Results expected = run(cpu, c, qkv, dy);
    CHECK(run(cpu, c, qkv, dy) == expected);
    const Case last{1, c.T, c.H, c.D, dtype};
    const Values qkv_last(qkv.end() - c.T * 3 * c.C(), qkv.end()),
        dy_last(dy.end() - c.T * c.C(), dy.end());
    const Results alone = run(cpu, last, qkv_last, dy_last);
    CHECK(alone.y == Values(expected.y.end() - c.T * c.C(), expected.y.end()));
    CHECK(alone.dqkv == Values(expected.dqkv.end() - c.T * 3 * c.C(), expected.dqkv.end()));
    CHECK(alone.dqkv != Values(expected.dqkv.begin(), expected.dqkv.begin() + c.T * 3 * c.C()));
  }
}

TEST_CASE("attention survives scores that overflow an exponential", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Case c{1, 66, 1, 4};
  const Values qkv = scaled_values(c.T * 3 * c.C(), 1, 60.0), dy = dy_of(c);
  const Results result = run(cpu, c, qkv, dy);
  CHECK(size_of_values(result.log_sum_exp) > 1000);
  CHECK(largest_difference(result.dqkv, result.dqkv) == 0);  // no NaN
  CHECK(size_of_values(result.y) <= 60.001);
}

TEST_CASE("attention workspace depends neither on batch nor on heads and holds no T by T matrix",
          "[tensor]") {
  const auto bytes = [&](KernelId kernel, int64_t B, int64_t T, int64_t H, int64_t D, Dtype dtype) {
    return cpu_backend().workspace(kernel, std::array{B, T, H, D}, dtype);
  };
  for (const KernelId kernel : {KernelId::attention, KernelId::attention_backward}) {
    for (const Dtype dtype : kTypes) {
      CHECK(bytes(kernel, 1, 300, 1, 16, dtype) == bytes(kernel, 8, 300, 12, 16, dtype));
      CHECK(bytes(kernel, 1, 8192, 1, 64, dtype) < 8192 * 8192);
    }
  }
}

}  // namespace
