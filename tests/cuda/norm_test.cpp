#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSubtree = 16 * 1024;  // the elements that one block of threads adds

std::vector<double> sum_of_squares(Side& s, const Tensor& x) {
  const Tensor out = s.nan({1}, Dtype::f64);
  kernel::sum_of_squares(x, out);
  return values_of(out);
}

}  // namespace

TEST_CASE("on the GPU a sum of squares has the bits of the CPU, in every type", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int64_t n =
      GENERATE(0, 1, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 5000, kSubtree - 1, kSubtree,
               kSubtree + 1, 3 * kSubtree, 5 * kSubtree + 1025, 11 * kSubtree - 7);
  CAPTURE(name(dtype), n);
  const auto [cpu, gpu] =
      on_both([&](Side& s) { return sum_of_squares(s, s.of(random_values(n, 1), {n}, dtype)); });
  CHECK(same_bits(gpu, cpu));
  CHECK((gpu[0] > 0) == (n > 0));
}

TEST_CASE("on the GPU a sum of squares over more parts than threads has the bits of the CPU",
          "[cuda]") {
  const int64_t n = 260 * kSubtree + 321;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor x = Tensor::zeros(s.memory, MemoryUse::activation, {n}, Dtype::f32);
    for (int64_t i = 0; i < n; i += 1 << 16)
      kernel::normal({.seed = 1}, i, x.slice(i, {std::min<int64_t>(n - i, 5)}));
    return sum_of_squares(s, x);
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("a sum of squares that begins one element later has other bits", "[cuda]") {
  const auto [cpu, gpu] = on_both([&](Side& s) {
    std::vector<double> values = random_values(5000, 1);
    // The same numbers, each in another lane: the first moves to the end.
    if (!s.memory.backend().host_addressable()) std::ranges::rotate(values, values.begin() + 1);
    return sum_of_squares(s, s.of(values, {5000}, Dtype::f32));
  });
  CHECK_FALSE(same_bits(gpu, cpu));
  CHECK(distance(gpu, cpu) < 1e-14);
}

TEST_CASE("a dry run of a GPU predicts the workspace of a sum of squares", "[cuda]") {
  require_gpu();
  const auto peak = [](Backend& backend) {
    Side s(backend);
    const Tensor x = Tensor::empty(s.memory, MemoryUse::gradient, {5 * kSubtree + 1}, Dtype::f32);
    kernel::fill(1, x);
    kernel::sum_of_squares(x, Tensor::empty(s.memory, MemoryUse::activation, {1}, Dtype::f64));
    return s.memory.ledger().peak(MemoryUse::workspace);
  };
  CHECK(peak(test_gpu()) == 6 * 8);
  CHECK(peak(meta_backend(DeviceKind::cuda)) == 6 * 8);
  CHECK(peak(cpu_backend()) == 0);
}

TEST_CASE("on the GPU squares_of_blocks has the bits of the CPU", "[cuda]") {
  const Dtype dtype = GENERATE(from_range(kFloatTypes));
  const int64_t n = GENERATE(1, 1023, 1024, 1025, kSubtree + 1, 3 * kSubtree);
  CAPTURE(name(dtype), n);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor out = s.nan({(n + 1023) / 1024}, Dtype::f64);
    kernel::squares_of_blocks(s.of(random_values(n, 1), {n}, dtype), out);
    return values_of(out);
  });
  CHECK(same_bits(gpu, cpu));
  CHECK(gpu.back() > 0);
}
