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
    std::vector<double> all;
    for (const Tensor& t : {y, sum, cast, filled})
      for (const double v : values_of(t)) all.push_back(v);
    return all;
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
    std::vector<double> all;
    for (const Tensor& t : {y, dx, added})
      for (const double v : values_of(t)) all.push_back(v);
    return all;
  });
  CHECK(distance(gpu, cpu) < tolerance(dtype));
}

TEST_CASE("on the GPU a bias is added to each row and rows are summed as on the CPU", "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t rows = GENERATE(1, 7, 8, 9, 100), columns = GENERATE(1, 31, 32, 33, 70);
  CAPTURE(name(dtype), rows, columns);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor x = s.of(random_values(rows * columns, 7), {rows, columns}, dtype),
                 bias = s.of(random_values(columns, 8), {columns}, dtype);
    const Tensor sum = s.of(random_values(columns, 9), {columns}, dtype);
    const Tensor weight = s.of(random_values(columns * columns, 10), {columns, columns}, dtype),
                 y = activation_like(x, x.shape());
    kernel::sum_rows(x, sum);
    kernel::matmul_bias(x, weight, Transpose::no, bias, y);
    std::vector<double> all = values_of(y);
    for (const double v : values_of(sum)) all.push_back(v);
    return all;
  });
  CHECK(distance(gpu, cpu) < tolerance(dtype));
}

TEST_CASE("on the GPU rows of several blocks of packs are summed as on the CPU", "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t rows = GENERATE(7, 100), columns = GENERATE(264, 520);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor sum = s.of(random_values(columns, 9), {columns}, dtype);
    kernel::sum_rows(s.of(random_values(rows * columns, 7), {rows, columns}, dtype), sum);
    return values_of(sum);
  });
  CHECK(distance(gpu, cpu) < tolerance(dtype));
}

TEST_CASE("on the GPU every layout of a matmul agrees with the CPU", "[cuda]") {
  const Dtype dtype = any_type();
  const Transpose ta = GENERATE(Transpose::no, Transpose::yes),
                  tb = GENERATE(Transpose::no, Transpose::yes);
  const Write write = GENERATE(Write::set, Write::add);
  const int64_t M = 5, N = 7, K = GENERATE(1, 33);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor a =
        s.of(random_values(M * K, 10), ta == Transpose::no ? Shape{M, K} : Shape{K, M}, dtype);
    const Tensor b =
        s.of(random_values(K * N, 11), tb == Transpose::no ? Shape{K, N} : Shape{N, K}, dtype);
    const Tensor out =
        write == Write::add ? s.of(random_values(M * N, 12), {M, N}, dtype) : s.nan({M, N}, dtype);
    kernel::matmul(a, ta, b, tb, out, write);
    return values_of(out);
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
