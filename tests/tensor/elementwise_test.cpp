#include <catch2/catch_test_macros.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The tensor's values: random numbers rounded to its type.
Tensor random(Cpu& cpu, int64_t n, uint64_t seed, Dtype dtype, double width = 4) {
  Values values = random_values(n, seed);
  for (double& v : values) v *= width;
  return cpu.of(values, {n}, dtype);
}

// Rounds to the type in which `dtype` is stored.
double rounded(Cpu& cpu, double value, Dtype dtype) {
  return doubles(cpu.of({value}, {1}, dtype))[0];
}

TEST_CASE("fill writes one value to every element of every type and to nothing else", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const Tensor whole = cpu.of(Values(35, 7), {35}, dtype);
  kernel::fill(-1.5, whole.slice(1, {33}));
  Values expected(35, -1.5);
  expected.front() = expected.back() = 7;
  CHECK(doubles(whole) == expected);

  const Tensor ids = cpu.empty({5}, Dtype::i32);
  kernel::fill(42, ids);
  CHECK(kernel::download<int32_t>(ids) == std::vector<int32_t>(5, 42));
}

TEST_CASE("copy casts between all float types with one rounding, and copies ids exactly",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype from = any_type();
  for (Dtype to : kTypes) {
    const Tensor x = random(cpu, 133, 1, from), y = cpu.nan({133}, to);
    kernel::copy(x, y);
    CHECK(same_bits(y, cpu.of(doubles(x), {133}, to)));
    CHECK_FALSE(same_bits(y, cpu.of(doubles(random(cpu, 133, 2, from)), {133}, to)));
  }
  const Tensor ids = cpu.empty({3}, Dtype::i32), copied = cpu.empty({3}, Dtype::i32);
  kernel::upload<int32_t>(std::vector<int32_t>{5, -6, 7}, ids);
  kernel::copy(ids, copied);
  CHECK(same_bits(ids, copied));
  CHECK_THROWS_AS(kernel::copy(ids, cpu.empty({3}, Dtype::f32)), std::invalid_argument);
}

TEST_CASE("copy handles overlapping ranges of one storage", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Tensor t = cpu.of({0, 1, 2, 3, 4, 5}, {6}, Dtype::f32);
  kernel::copy(t.slice(0, {5}), t.slice(1, {5}));
  CHECK(doubles(t) == Values{0, 0, 1, 2, 3, 4});
}

TEST_CASE("accumulate adds any float type to any other, computing in the wider", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype from = any_type();
  for (Dtype into : kTypes) {
    const Tensor x = random(cpu, 77, 1, from), y = random(cpu, 77, 2, into);
    Values sum = doubles(y);
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += doubles(x)[i];
      if (from != Dtype::f64 && into != Dtype::f64) sum[i] = float(sum[i]);
    }
    kernel::accumulate(x, y);
    CHECK(same_bits(y, cpu.of(sum, {77}, into)));
  }
}

// GELU and its gradient for dy = 1, by the reference in f64.
std::pair<Values, Values> exact_gelu(const Values& x) {
  Cpu reference(reference_backend());
  const Shape n{int64_t(x.size())};
  const Tensor in = reference.of(x, n, Dtype::f64), y = reference.nan(n, Dtype::f64),
               dx = reference.of(Values(x.size(), 1), n, Dtype::f64);
  kernel::gelu(in, y);
  kernel::gelu_backward(in, dx, dx, Write::set);
  return {doubles(y), doubles(dx)};
}

TEST_CASE("gelu is the tanh form to the last bits of its type, also in place", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const Tensor x = random(cpu, 4001, 3, dtype, 13), y = cpu.nan({4001}, dtype);
  kernel::gelu(x, y);
  const Values in = doubles(x), out = doubles(y), exact = exact_gelu(in).first;
  double worst = 0, worst_of_wrong = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double scale = epsilon(dtype) * std::max(std::abs(in[i]), 1e-6);
    worst = std::max(worst, std::abs(out[i] - exact[i]) / scale);
    const double erf_form = 0.5 * in[i] * (1 + std::erf(in[i] / std::sqrt(2)));
    worst_of_wrong = std::max(worst_of_wrong, std::abs(out[i] - erf_form) / compute_epsilon(dtype));
  }
  CHECK(worst < 2);
  CHECK(worst_of_wrong > 1000);  // the erf form is another function, by 5e-4 at most
  kernel::gelu(x, x);
  CHECK(same_bits(x, y));
}

TEST_CASE("gelu of huge numbers is the number or nearly zero, and of NaN is NaN", "[tensor]") {
  Cpu cpu;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = cpu.of({1e30, 3e38, kInfinity, -11, -1e5, -1e30, -kInfinity, nan, -nan, 0}, {10},
                          Dtype::f32),
               y = cpu.nan({10}, Dtype::f32);
  kernel::gelu(x, y);
  const Values v = doubles(y);
  CHECK(Values(v.begin(), v.begin() + 3) == Values{1e30f, 3e38f, kInfinity});
  for (size_t i = 3; i < 7; ++i) CHECK(std::abs(v[i]) < 1e-36);
  CHECK((std::isnan(v[7]) && std::isnan(v[8])));
  CHECK(v[9] == 0);

  const Tensor one = cpu.of(Values(10, 1), {10}, Dtype::f32);
  kernel::gelu_backward(x, one, y, Write::set);
  const Values slope = doubles(y);
  CHECK((slope[0] == 1 && slope[1] == 1));
  for (size_t i = 3; i < 6; ++i) CHECK(std::abs(slope[i]) < 1e-34);
  CHECK((std::isnan(slope[7]) && std::isnan(slope[8])));
  CHECK(slope[9] == 0.5);
}

TEST_CASE("gelu_backward sets or adds, rounding once, and may overwrite dy", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const Tensor x = random(cpu, 1003, 5, dtype, 12), dy = random(cpu, 1003, 6, dtype),
               dx = cpu.nan({1003}, dtype);
  const Tensor sum = cpu.of(Values(1003, 0.5), {1003}, dtype);
  kernel::gelu_backward(x, dy, dx, Write::set);
  kernel::gelu_backward(x, dy, sum, Write::add);
  const Values in = doubles(x), d = doubles(dy), set = doubles(dx), added = doubles(sum),
               slope = exact_gelu(in).second;
  for (size_t i = 0; i < in.size(); ++i) {
    const double expected = d[i] * slope[i];
    REQUIRE(std::abs(set[i] - expected) <= epsilon(dtype) * std::max(std::abs(expected), 1e-6) +
                                               8 * compute_epsilon(dtype) * std::abs(d[i]));
    REQUIRE(std::abs(added[i] - 0.5 - expected) <= epsilon(dtype) * (0.5 + std::abs(expected)) +
                                                       8 * compute_epsilon(dtype) * std::abs(d[i]));
  }
  CHECK_FALSE(same_bits(dx, sum));
  kernel::gelu_backward(x, dy, dy, Write::set);
  CHECK(same_bits(dx, dy));
}

TEST_CASE("sum_rows rounds to a 16-bit type once, not at every row", "[tensor]") {
  Cpu cpu(any_host_backend());
  const Tensor out = cpu.of({0}, {1}, Dtype::bf16);
  kernel::sum_rows(cpu.of(Values(1000, 1), {1000, 1}, Dtype::bf16), out);
  CHECK(doubles(out)[0] == 1000);
  bf16 one_by_one(0.0f);
  for (int i = 0; i < 1000; ++i) one_by_one = bf16(one_by_one + 1.0f);
  CHECK(float(one_by_one) == 256);  // where bf16 stops counting
  CHECK(rounded(cpu, 1000.4, Dtype::bf16) == 1000);
}

}  // namespace
