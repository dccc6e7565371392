#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <tuple>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

const auto any_type = [] { return GENERATE(from_range(kFloatTypes)); };

// R ids of a table of V rows. Some rows never occur, the first occurs often.
std::vector<int32_t> ids_of(int64_t R, int64_t V) {
  std::vector<int32_t> ids(static_cast<size_t>(R));
  const PhiloxStream random{20261121, 99};
  for (int64_t r = 0; r < R; ++r)
    ids[size_t(r)] = int32_t(std::max(0.0, random.uniform(uint64_t(r)) * 1.3 - 0.3) * double(V));
  return ids;
}

// The gradient of a table whose buffer was not zero.
std::vector<double> backward(Side& s, const std::vector<int32_t>& ids,
                             const std::vector<double>& dy, Shape table, Dtype dtype) {
  const int64_t R = int64_t(ids.size()), C = table[1];
  const Tensor dtable = s.of(random_values(numel(table), 2), table, dtype);
  kernel::embedding_backward(s.of(ids, {1, R}), s.of(dy, {1, R, C}, dtype), dtable);
  return values_of(dtable);
}

}  // namespace

TEST_CASE("on the GPU embedding copies the rows of the CPU", "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t R = GENERATE(0, 1, 33, 200), C = GENERATE(1, 32, 257, 300), V = 19;
  CAPTURE(name(dtype), R, C);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor y = s.nan({1, R, C}, dtype);
    kernel::embedding(s.of(ids_of(R, V), {1, R}), s.of(random_values(V * C, 1), {V, C}, dtype), y);
    return values_of(y);
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("on the GPU the gradient of a table has the bits of the CPU, in every type", "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t R = GENERATE(0, 1, 31, 32, 33, 300), C = GENERATE(1, 31, 32, 33, 70),
                V = GENERATE(1, 8, 19);
  CAPTURE(name(dtype), R, C, V);
  const std::vector<double> dy = random_values(R * C, 3);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    return backward(s, ids_of(R, V), dy, {V, C}, dtype);
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("on the GPU a frequent token and a thousand rare ones have the bits of the CPU",
          "[cuda]") {
  const Dtype dtype = any_type();
  const auto [R, V, every] = GENERATE(std::tuple<int64_t, int64_t, int>{8192, 3, 0},
                                      std::tuple<int64_t, int64_t, int>{1900, 3, 0},
                                      std::tuple<int64_t, int64_t, int>{1500, 1500, 7});
  const int64_t C = GENERATE(3, 1030);  // one block for the columns, and two
  if (R * C > 2'000'000) return;
  CAPTURE(name(dtype), R, C, V);
  std::vector<int32_t> ids(size_t(R), 1);  // one token; or all different, in another order
  for (int64_t r = 0; every && r < R; ++r) ids[size_t(r)] = int32_t(r * every % V);
  const std::vector<double> dy = random_values(R * C, 3);
  const auto [cpu, gpu] = on_both([&](Side& s) { return backward(s, ids, dy, {V, C}, dtype); });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE(
    "the gradient of a table depends on the order in which rows are added, so the equality above "
    "shows it",
    "[cuda]") {
  const int64_t R = 1025, C = 3, V = 5;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    std::vector<int32_t> ids = ids_of(R, V);
    std::vector<double> dy = random_values(R * C, 3);
    if (!s.memory.backend().host_addressable()) {  // the twin adds the last row first
      std::ranges::reverse(ids);
      std::vector<double> last_first;
      for (int64_t r = R - 1; r >= 0; --r)
        last_first.insert(last_first.end(), dy.begin() + r * C, dy.begin() + (r + 1) * C);
      dy = last_first;
    }
    return backward(s, ids, dy, {V, C}, Dtype::f32);
  });
  CHECK_FALSE(same_bits(gpu, cpu));
  CHECK(distance(gpu, cpu) < tolerance(Dtype::f32));
}

TEST_CASE("on the GPU an id outside the table gives a row of NaN and adds to no row", "[cuda]") {
  Side s(test_gpu());
  const int64_t C = 5, V = 4;
  const std::vector<int32_t> ids{3, 4, -1, INT32_MAX, INT32_MIN, 0};
  const Tensor y = s.of(random_values(6 * C, 1), {1, 6, C}, Dtype::bf16),
               table = s.of(random_values(V * C, 2), {V, C}, Dtype::bf16);
  kernel::embedding(s.of(ids, {1, 6}), table, y);
  const std::vector<double> rows = values_of(y);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(std::isnan(rows[i]) == (i / 5 >= 1 && i / 5 <= 4));
  kernel::embedding_backward(s.of(ids, {1, 6}), y, table);
  for (const double v : values_of(table)) CHECK(std::isfinite(v));
}

TEST_CASE("on the GPU ids outside the table change nothing for the others", "[cuda]") {
  const int64_t C = 5, V = 4;
  const std::vector<double> dy = random_values(5 * C, 3);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const bool on_cpu = s.memory.backend().host_addressable();  // the CPU refuses the others
    const std::vector<int32_t> ids =
        on_cpu ? std::vector<int32_t>{3, 0, 3} : std::vector<int32_t>{3, V, 0, -1, 3};
    std::vector<double> rows = dy;
    if (on_cpu) {
      rows.erase(rows.begin() + 3 * C, rows.begin() + 4 * C);
      rows.erase(rows.begin() + 1 * C, rows.begin() + 2 * C);
    }
    return backward(s, ids, rows, {V, C}, Dtype::bf16);
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("on the GPU positions are added and their gradients summed with the bits of the CPU",
          "[cuda]") {
  const Dtype dtype = any_type();
  const int64_t B = GENERATE(1, 2, 7), T = GENERATE(1, 9), C = GENERATE(1, 33, 130);
  CAPTURE(name(dtype), B, T, C);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Shape shape{B, T, C}, longer{T + 2, C};
    const Tensor x = s.of(random_values(B * T * C, 4), shape, dtype),
                 table = s.of(random_values((T + 2) * C, 5), longer, dtype);
    const Tensor y = s.nan(shape, dtype),
                 dtable = s.of(random_values((T + 2) * C, 6), longer, dtype);
    kernel::add_positions(x, table, y);
    kernel::add_positions_backward(x, dtable);
    kernel::add_positions(x, table, x);  // in place
    return values_of({x, y, dtable});
  });
  CHECK(same_bits(gpu, cpu));
}
