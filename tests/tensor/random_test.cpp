#include "tensor/random.h"

#include <catch2/catch_test_macros.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;
using Words = std::array<uint32_t, 4>;

TEST_CASE("philox4x32-10 agrees with the test vectors of Random123", "[tensor]") {
  constexpr uint32_t ff = 0xffffffff;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({ff, ff, ff, ff}, {ff, ff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(philox4x32({1, 0, 0, 0}, {0, 0}) != philox4x32({0, 0, 0, 0}, {0, 0}));
}

TEST_CASE("fnv1a agrees with published 64-bit hashes", "[tensor]") {
  CHECK(fnv1a("") == 0xcbf29ce484222325u);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8cu);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8u);
  CHECK(fnv1a("bar", fnv1a("foo")) == fnv1a("foobar"));
  CHECK(fnv1a("\xff") == 0xaf64724c8602eb6eu);  // bytes are unsigned
}

TEST_CASE("seed, stream and both halves of the index change a block", "[tensor]") {
  const Words block = PhiloxStream{1, 2}.block(3);
  CHECK(block == PhiloxStream{1, 2}.block(3));
  CHECK(block != PhiloxStream{2, 2}.block(3));
  CHECK(block != PhiloxStream{uint64_t(1) << 32 | 1, 2}.block(3));
  CHECK(block != PhiloxStream{1, 3}.block(3));
  CHECK(block != PhiloxStream{1, uint64_t(1) << 32 | 2}.block(3));
  CHECK(block != PhiloxStream{1, 2}.block(4));
  CHECK(block != PhiloxStream{1, 2}.block(uint64_t(1) << 32 | 3));
}

TEST_CASE("uniform numbers are in [0, 1) and evenly distributed", "[tensor]") {
  const PhiloxStream stream{7, 8};
  double sum = 0, squares = 0, low = 1, high = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform(uint64_t(i));
    sum += u, squares += u * u, low = std::min(low, u), high = std::max(high, u);
  }
  CHECK((low >= 0 && low < 1e-4 && high < 1 && high > 1 - 1e-4));
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
}

TEST_CASE(
    "normal fills element i with number first + i of the stream, from any start and in any type",
    "[tensor]") {
  Cpu cpu(any_host_backend());
  const Dtype dtype = any_type();
  const PhiloxStream stream{11, fnv1a("h.0.mlp.c_fc.weight")};
  Values expected;
  for (uint64_t i = 0; i < 80; ++i) expected.push_back(0.5 + 0.02 * stream.normal(i));
  const Tensor whole = cpu.of(expected, {80}, dtype);
  for (int64_t first : {0, 1, 2, 3, 10, 31}) {
    for (int64_t n : {0, 1, 2, 3, 8, 45}) {
      const Tensor out = cpu.nan({n}, dtype);
      kernel::normal({11, stream.stream, 0.5, 0.02}, first, out);
      CHECK(same_bits(out, whole.slice(first, {n})));
    }
  }
  const Tensor other = cpu.nan({80}, dtype);
  kernel::normal({12, stream.stream, 0.5, 0.02}, 0, other);
  CHECK_FALSE(same_bits(other, whole));
}

TEST_CASE("normal supports indices beyond 32 bits", "[tensor]") {
  Cpu cpu(any_host_backend());
  const int64_t far = (int64_t(1) << 36) + 1;
  const Tensor out = cpu.nan({4}, Dtype::f64), near = cpu.nan({4}, Dtype::f64);
  kernel::normal({1, 2}, far, out);
  kernel::normal({1, 2}, 1, near);
  for (int64_t i = 0; i < 4; ++i)
    CHECK(out.data<double>()[size_t(i)] == PhiloxStream{1, 2}.normal(uint64_t(far + i)));
  CHECK_FALSE(same_bits(out, near));
}

TEST_CASE("normal numbers have the moments, tails and independence of a normal distribution",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  const int64_t n = 1000000;
  const Tensor t = cpu.empty({n}, Dtype::f64);
  kernel::normal({1337, 42}, 0, t);
  const auto x = t.data<double>();
  double moments[5] = {}, neighbours = 0, beyond1 = 0, beyond2 = 0, beyond3 = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[size_t(i)], a = std::abs(v);
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(v, k) / double(n);
    if (i > 0) neighbours += v * x[size_t(i - 1)] / double(n);
    beyond1 += a > 1, beyond2 += a > 2, beyond3 += a > 3, largest = std::max(largest, a);
  }
  const double deviation = 1 / std::sqrt(double(n));  // bounds below: five standard errors
  CHECK(std::abs(moments[1]) < 5 * deviation);
  CHECK(std::abs(moments[2] - 1) < 5 * std::sqrt(2.0) * deviation);
  CHECK(std::abs(moments[3]) < 5 * std::sqrt(15.0) * deviation);
  CHECK(std::abs(moments[4] - 3) < 5 * std::sqrt(96.0) * deviation);
  CHECK(std::abs(neighbours) < 5 * deviation);
  CHECK(std::abs(beyond1 / double(n) - 0.317310507863) < 5 * 0.4655 * deviation);
  CHECK(std::abs(beyond2 / double(n) - 0.045500263896) < 5 * 0.2084 * deviation);
  CHECK(std::abs(beyond3 / double(n) - 0.002699796063) < 5 * 0.0519 * deviation);
  CHECK((largest > 4.2 && largest < 8.5));  // sqrt(2 ln 2^52) = 8.49 is the largest there can be
}

}  // namespace
