#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

const auto any_size = [] { return GENERATE(int64_t(0), 1, 255, 256, 257, 5000); };
const auto any_type = [] { return GENERATE(from_range(kFloatTypes)); };

std::vector<double> numbers(Side& s, int64_t first, int64_t n, Dtype dtype) {
  const Tensor t = s.nan({n}, dtype);
  kernel::normal({.seed = 7, .stream = 3, .mean = 0.25, .deviation = 1.5}, first, t);
  return values_of(t);
}

}  // namespace

TEST_CASE("on the GPU fills, sums and casts have the bits of the CPU", "[cuda]") {
  const int64_t n = any_size();
  const Dtype dtype = any_type(), other = any_type();
  CAPTURE(n, name(dtype), name(other));
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor a = s.of(random_values(n, 1), {n}, dtype),
                 b = s.of(random_values(n, 2), {n}, dtype), y = s.nan({n}, dtype);
    const Tensor sum = s.of(random_values(n, 3), {n}, other), cast = s.nan({n}, other),
                 filled = s.nan({n}, dtype);
    kernel::add(a, b, y);
    kernel::accumulate(a, sum);
    kernel::copy(a, cast);
    kernel::fill(0.3, filled);
    return values_of({y, sum, cast, filled});
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("on the GPU GELU and its gradient are those of the CPU, far out too", "[cuda]") {
  const Dtype dtype = any_type();
  const auto [cpu, gpu] = on_both([&](Side& s) {
    std::vector<double> values = random_values(2000, 4, 3);
    for (const double far : {-1e4, -100.0, -20.0, -9.0, 0.0, 9.0, 20.0, 100.0, 1e4})
      values.push_back(far);
    const int64_t n = int64_t(values.size());
    const Tensor x = s.of(values, {n}, dtype), dy = s.of(random_values(n, 5), {n}, dtype),
                 y = s.nan({n}, dtype), dx = s.nan({n}, dtype);
    const Tensor added = s.of(random_values(n, 6), {n}, dtype);
    kernel::gelu(x, y);
    kernel::gelu_backward(x, dy, dx, Write::set);
    kernel::gelu_backward(x, dy, added, Write::add);
    return values_of({y, dx, added});
  });
  CHECK(distance(gpu, cpu) < tolerance(dtype));
}

TEST_CASE("on the GPU rows are summed as on the CPU, in one block of packs and in several",
          "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t rows = GENERATE(1, 7, 8, 9, 100), columns = GENERATE(1, 31, 32, 33, 70, 264, 520);
  CAPTURE(name(dtype), rows, columns);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor sum = s.of(random_values(columns, 9), {columns}, dtype);
    kernel::sum_rows(s.of(random_values(rows * columns, 7), {rows, columns}, dtype), sum);
    return values_of(sum);
  });
  CHECK(distance(gpu, cpu) < tolerance(dtype));
}

TEST_CASE("a difference between the two is noticed", "[cuda]") {
  const auto [cpu, gpu] = on_both([](Side& s) {
    const Tensor a = s.of(random_values(300, 1), {300}, Dtype::f32), y = s.nan({300}, Dtype::f32);
    kernel::add(a, a, y);
    if (!s.memory.backend().host_addressable()) kernel::fill(0, y.slice(299, {1}));
    return values_of(y);
  });
  CHECK_FALSE(same_bits(gpu, cpu));
  CHECK(distance(gpu, cpu) > tolerance(Dtype::bf16));
}

TEST_CASE("on the GPU block quantisation has the bits of the CPU, in every type", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int bits = GENERATE(8, 4);
  const int64_t n = GENERATE(2, 254, 256, 258, 1000);
  const double special = GENERATE(0.5, 1e-41, std::numeric_limits<double>::infinity());
  CAPTURE(name(dtype), bits, n, special);
  std::vector<double> values = random_values(3 * n, 1);
  values[size_t(n)] = special;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    Quantized q;
    q.bits = bits;
    q.codes = Tensor::empty(s.memory, MemoryUse::communication, {3, n * bits / 8}, Dtype::u8);
    q.scales = s.nan({3, (n + 255) / 256}, Dtype::f32);
    kernel::quantize(s.of(values, {3, n}, dtype), q);
    const Tensor sum = s.of(random_values(3 * n, 2), {3, n}, dtype);
    kernel::dequantize(q, sum, Write::add);
    const Tensor back = s.nan({3, n}, dtype);
    kernel::dequantize(q, back);
    kernel::divide(3, sum);
    return values_of({back, sum, q.scales});
  });
  CHECK(same_bits(gpu, cpu));
  CHECK_FALSE(same_bits(gpu, std::vector<double>(gpu.size())));
}

// On a real GPU logarithm, cosine and sine may differ in the last bits of a double.
TEST_CASE("on the GPU normal numbers are those of the CPU, wherever they begin and end", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int64_t first = GENERATE(0, 1, 7, 1000, (int64_t(1) << 33) + 1);
  CAPTURE(name(dtype), first);
  for (const int64_t n : {0, 1, 2, 31, 32, 33, 511, 512, 513, 1023, 1024, 1025, 5000}) {
    const auto [cpu, gpu] = on_both([&](Side& s) { return numbers(s, first, n, dtype); });
    CAPTURE(n);
    CHECK((same_bits(gpu, cpu) || (real_gpu() && distance(gpu, cpu) <= tolerance(dtype))));
  }
}

TEST_CASE(
    "on the GPU a range of a normal stream has the bits of the full tensor, and nothing else is "
    "written",
    "[cuda]") {
  Side s(test_gpu());
  const std::vector<double> whole = numbers(s, 0, 600, Dtype::f32);
  const int64_t begin = GENERATE(0, 1, 2, 255), n = GENERATE(1, 2, 33, 300);
  const Tensor t = s.of(std::vector<double>(600, 9), {600}, Dtype::f32);
  kernel::normal({.seed = 7, .stream = 3, .mean = 0.25, .deviation = 1.5}, begin,
                 t.slice(begin, {n}));
  const std::vector<double> part = values_of(t);
  for (int64_t i = 0; i < 600; ++i)
    REQUIRE(part[size_t(i)] == (i >= begin && i < begin + n ? whole[size_t(i)] : 9));
}

TEST_CASE("numbers that begin one later are others", "[cuda]") {
  const auto [cpu, gpu] = on_both([](Side& s) {
    return numbers(s, s.memory.backend().host_addressable() ? 0 : 1, 33, Dtype::f32);
  });
  for (size_t i = 0; i < 33; ++i) CHECK(gpu[i] != cpu[i]);
}
