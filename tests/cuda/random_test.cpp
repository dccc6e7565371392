#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

std::vector<double> numbers(Side& s, int64_t first, int64_t n, Dtype dtype) {
  const Tensor t = s.nan({n}, dtype);
  kernel::normal({.seed = 7, .stream = 3, .mean = 0.25, .deviation = 1.5}, first, t);
  return values_of(t);
}

}  // namespace

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
