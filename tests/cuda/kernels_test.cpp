// Kernels that promise the bits of the CPU, and those of element by element that do not: one table,
// each row run on both sides at the edges of packs, warps and blocks of threads.
#include "tensor/kernels.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>

#include "tensor/platform/quantize.h"
#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

using Values = std::vector<double>;
constexpr int64_t kSubtree = 16 * 1024;  // the elements whose squares one block of threads adds
constexpr int64_t kVocab = 19;

// R ids of a table of V rows. Some rows never occur, the first occurs often.
std::vector<int32_t> ids_of(int64_t R, int64_t V) {
  std::vector<int32_t> ids(static_cast<size_t>(R));
  const PhiloxStream random{20261121, 99};
  for (int64_t r = 0; r < R; ++r)
    ids[size_t(r)] = int32_t(std::max(0.0, random.uniform(uint64_t(r)) * 1.3 - 0.3) * double(V));
  return ids;
}

// Operands of one call with R rows of C: the same values on both sides.
struct Operands {
  Side& s;
  Dtype dtype;
  int64_t R, C;
  uint64_t next = 1;
  Tensor of(Shape shape, Dtype type) {
    const int64_t n = numel(shape);
    return s.of(random_values(n, next++), std::move(shape), type);
  }
  Tensor of(Shape shape) { return of(std::move(shape), dtype); }
  Tensor nan(Shape shape) const { return s.nan(std::move(shape), dtype); }
};

// Adds to a table that is not zero.
Values gradient_of_table(Side& s, const std::vector<int32_t>& ids, const Values& dy, Shape table,
                         Dtype dtype) {
  const int64_t R = int64_t(ids.size()), C = table[1];
  const Tensor dtable = s.of(random_values(numel(table), 2), table, dtype);
  kernel::embedding_backward(s.of(ids, {1, R}), s.of(dy, {1, R, C}, dtype), dtable);
  return values_of(dtable);
}

Values elements(Operands make) {
  const Shape x{make.R, make.C};
  const Tensor a = make.of(x), b = make.of(x), y = make.nan(x), filled = make.nan(x);
  kernel::add(a, b, y);
  kernel::fill(0.3, filled);
  Values all = values_of({y, filled});
  for (const Dtype other : kFloatTypes) {
    const Tensor sum = make.of(x, other), cast = make.s.nan(x, other);
    kernel::accumulate(a, sum);
    kernel::copy(a, cast);
    for (const double v : values_of({sum, cast})) all.push_back(v);
  }
  return all;
}

Values embedding(Operands make) {
  const auto [s, dtype, R, C, next] = make;
  const Tensor y = make.nan({1, R, C});
  kernel::embedding(s.of(ids_of(R, kVocab), {1, R}), make.of({kVocab, C}), y);
  Values all = values_of(y);
  for (const int64_t V : {int64_t(1), int64_t(8), kVocab})
    for (const double v :
         gradient_of_table(s, ids_of(R, V), random_values(R * C, 3), {V, C}, dtype))
      all.push_back(v);
  return all;
}

Values positions(Operands make) {
  const int64_t T = make.R % 9 == 0 ? 9 : 1;
  const Shape shape{make.R / T, T, make.C}, longer{T + 2, make.C};
  const Tensor x = make.of(shape), table = make.of(longer), y = make.nan(shape),
               dtable = make.of(longer);
  kernel::add_positions(x, table, y);
  kernel::add_positions_backward(x, dtable);
  kernel::add_positions(x, table, x);  // in place
  return values_of({x, y, dtable});
}

Values squares(Operands make) {
  const int64_t n = make.R * make.C;
  const Tensor x = make.of({n}), sum = make.s.nan({1}, Dtype::f64),
               blocks = make.s.nan({(n + 1023) / 1024}, Dtype::f64);
  kernel::sum_of_squares(x, sum);
  kernel::squares_of_blocks(x, blocks);
  return values_of({sum, blocks});
}

Values sum_rows(Operands make) {
  const Tensor sum = make.of({make.C});
  if (make.R > 0) kernel::sum_rows(make.of({make.R, make.C}), sum);
  return values_of(sum);
}

Values gelu(Operands make) {
  Values values = random_values(make.R * make.C, 4, 3);
  for (const double far : {-1e4, -100.0, -20.0, -9.0, 0.0, 9.0, 20.0, 100.0, 1e4})
    values.push_back(far);
  const int64_t n = int64_t(values.size());
  const Tensor x = make.s.of(values, {n}, make.dtype), dy = make.of({n}), y = make.nan({n}),
               dx = make.nan({n}), added = make.of({n});
  kernel::gelu(x, y);
  kernel::gelu_backward(x, dy, dx, Write::set);
  kernel::gelu_backward(x, dy, added, Write::add);
  return values_of({y, dx, added});
}

struct Row {
  const char* name;
  std::function<Values(Operands)> values;
  bool bits = true;  // else within the tolerance of the type
};
const Row kRows[] = {{"add, fill, accumulate, copy", elements},
                     {"embedding and its gradient", embedding},
                     {"positions and their gradient", positions},
                     {"sums of squares", squares},
                     {"sum_rows", sum_rows, false},
                     {"gelu and its gradient", gelu, false}};

Values normal_numbers(Side& s, int64_t first, int64_t n, Dtype dtype) {
  const Tensor t = s.nan({n}, dtype);
  kernel::normal({.seed = 7, .stream = 3, .mean = 0.25, .deviation = 1.5}, first, t);
  return values_of(t);
}

bool on_cpu(Side& s) { return s.memory.backend().host_addressable(); }

}  // namespace

TEST_CASE("on the GPU every kernel of the table has the bits or the values of the CPU", "[cuda]") {
  const Dtype dtype = any_float_type();
  const auto [R, C] = GENERATE(table<int64_t, int64_t>({{0, 5},
                                                        {1, 1},
                                                        {7, 32},
                                                        {8, 33},
                                                        {1, 255},
                                                        {1, 257},
                                                        {33, 31},
                                                        {63, 130},
                                                        {18, 1},
                                                        {300, 33},
                                                        {33, 300}}));
  for (const Row& row : kRows) {
    CAPTURE(row.name, name(dtype), R, C);
    const auto [cpu, gpu] = on_both([&](Side& s) { return row.values({s, dtype, R, C}); });
    CHECK((row.bits ? same_bits(gpu, cpu) : distance(gpu, cpu) < tolerance(dtype)));
    if (R == 0 || dtype != Dtype::f32) continue;
    const auto other = on_both([&](Side& s) {
      return row.values({s, dtype, R, C, on_cpu(s) ? 1u : 100u});
    });
    CHECK_FALSE(same_bits(other.second, other.first));
  }
}

TEST_CASE("on the GPU sums of squares have the bits of the CPU at the edges of blocks and subtrees",
          "[cuda]") {
  const Dtype dtype = any_float_type();
  const int64_t n = GENERATE(15, 16, 17, 1023, 1024, 1025, kSubtree - 1, kSubtree, kSubtree + 1,
                             5 * kSubtree + 1025);
  CAPTURE(name(dtype), n);
  const auto [cpu, gpu] = on_both([&](Side& s) { return squares({s, dtype, 1, n}); });
  CHECK(same_bits(gpu, cpu));
  CHECK(gpu[0] > 0);
}

TEST_CASE("on the GPU a sum of squares over more parts than threads has the bits of the CPU",
          "[cuda]") {
  const int64_t n = 260 * kSubtree + 321;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    const Tensor x = Tensor::zeros(s.memory, MemoryUse::activation, {n}, Dtype::f32),
                 sum = s.nan({1}, Dtype::f64);
    for (int64_t i = 0; i < n; i += 1 << 16)
      kernel::normal({.seed = 1}, i, x.slice(i, {std::min<int64_t>(n - i, 5)}));
    kernel::sum_of_squares(x, sum);
    return values_of(sum);
  });
  CHECK(same_bits(gpu, cpu));
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
  CHECK(peak(reference_backend()) == 0);
}

TEST_CASE("on the GPU a frequent token and a thousand rare ones have the bits of the CPU",
          "[cuda]") {
  const Dtype dtype = any_float_type();
  const auto [R, V, C, every] = GENERATE(table<int64_t, int64_t, int64_t, int>(
      {{2100, 3, 3, 0}, {1100, 1100, 3, 7}, {40, 3, 1030, 0}}));
  if (C == 1030 && dtype != Dtype::bf16) return;  // two blocks for the columns, in one type
  CAPTURE(name(dtype), R, C, V);
  std::vector<int32_t> ids(size_t(R), 1);  // one token; or all different, in another order
  for (int64_t r = 0; every && r < R; ++r) ids[size_t(r)] = int32_t(r * every % V);
  const Values dy = random_values(R * C, 3);
  const auto [cpu, gpu] = on_both([&](Side& s) {
    return gradient_of_table(s, ids, dy, {V, C}, dtype);
  });
  CHECK(same_bits(gpu, cpu));
}

TEST_CASE("sums in another order have other bits, so the equalities above show the order",
          "[cuda]") {
  const int64_t R = 1025, C = 3;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    std::vector<int32_t> ids = ids_of(R, 5);
    Values dy = random_values(R * C, 3), x = random_values(5000, 1);
    if (!on_cpu(s)) {  // the last row of dy is added first, and each square in another lane
      std::ranges::reverse(ids);
      Values last_first;
      for (int64_t r = R - 1; r >= 0; --r)
        last_first.insert(last_first.end(), dy.begin() + r * C, dy.begin() + (r + 1) * C);
      dy = last_first;
      std::ranges::rotate(x, x.begin() + 1);
    }
    const Tensor sum = s.nan({1}, Dtype::f64);
    kernel::sum_of_squares(s.of(x, {5000}, Dtype::f32), sum);
    return std::pair(gradient_of_table(s, ids, dy, {5, C}, Dtype::f32), values_of(sum));
  });
  CHECK_FALSE(same_bits(gpu.first, cpu.first));
  CHECK(distance(gpu.first, cpu.first) < tolerance(Dtype::f32));
  CHECK_FALSE(same_bits(gpu.second, cpu.second));
  CHECK(distance(gpu.second, cpu.second) < 1e-14);
}

TEST_CASE("on the GPU an id outside the table gives a row of NaN and adds to no row", "[cuda]") {
  const int64_t C = 5, V = 4;
  const std::vector<int32_t> ids{3, 4, -1, INT32_MAX, INT32_MIN, 0};
  Side gpu(test_gpu()), cpu(reference_backend());
  const Tensor y = gpu.nan({1, 6, C}, Dtype::bf16),
               table = gpu.of(random_values(V * C, 2), {V, C}, Dtype::bf16);
  kernel::embedding(gpu.of(ids, {1, 6}), table, y);
  const Values rows = values_of(y), dy = random_values(6 * C, 3);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(std::isnan(rows[i]) == (i / 5 >= 1 && i / 5 <= 4));
  Values right(dy.begin(), dy.begin() + C);  // the CPU refuses the others
  right.insert(right.end(), dy.end() - C, dy.end());
  CHECK(same_bits(gradient_of_table(gpu, ids, dy, {V, C}, Dtype::bf16),
                  gradient_of_table(cpu, {3, 0}, right, {V, C}, Dtype::bf16)));
}

TEST_CASE("on the GPU block quantisation has the bits of the CPU, in every type", "[cuda]") {
  SettingsRow pick = any_pair({4, 2, 5, 3});
  const Dtype dtype = next_float_type(pick);
  const int bits = pick.next({8, 4});
  const int64_t n = pick.next({2, 254, 256, 258, 1000});
  const double special = pick.next({0.5, 1e-41, std::numeric_limits<double>::infinity()});
  CAPTURE(name(dtype), bits, n, special);
  Values values = random_values(3 * n, 1);
  values[size_t(n)] = special;
  const auto [cpu, gpu] = on_both([&](Side& s) {
    Quantized q;
    q.bits = bits;
    q.codes = Tensor::empty(s.memory, MemoryUse::communication, {3, n * bits / 8}, Dtype::u8);
    q.scales = s.nan({3, (n + 255) / 256}, Dtype::f32);
    kernel::quantize(s.of(values, {3, n}, dtype), q);
    const Tensor sum = s.of(random_values(3 * n, 2), {3, n}, dtype), back = s.nan({3, n}, dtype);
    kernel::dequantize(q, sum, Write::add);
    kernel::dequantize(q, back);
    kernel::divide(3, sum);
    return values_of({back, sum, q.scales});
  });
  CHECK(same_bits(gpu, cpu));
  CHECK_FALSE(same_bits(gpu, Values(gpu.size())));
}

// On a real GPU logarithm, cosine and sine may differ in the last bits of a double.
TEST_CASE("on the GPU normal numbers are those of the CPU, wherever they begin and end", "[cuda]") {
  const Dtype dtype = any_float_type();
  const int64_t first = GENERATE(0, 1, 7, 1000, (int64_t(1) << 33) + 1);
  CAPTURE(name(dtype), first);
  for (const int64_t n : {0, 1, 2, 33, 511, 1025, 5000}) {
    const auto [cpu, gpu] = on_both([&](Side& s) { return normal_numbers(s, first, n, dtype); });
    CAPTURE(n);
    CHECK((same_bits(gpu, cpu) || (real_gpu() && distance(gpu, cpu) <= tolerance(dtype))));
    Side side(reference_backend());
    const Values later = normal_numbers(side, first + 1, n, Dtype::f64);  // the twin
    CHECK((n < 31 || distance(gpu, later) > tolerance(dtype)));
  }
}

TEST_CASE("on the GPU a range of a normal stream has its bits, and nothing else is written",
          "[cuda]") {
  Side s(test_gpu());
  const Values whole = normal_numbers(s, 0, 600, Dtype::f32);
  const int64_t begin = GENERATE(0, 1, 2, 255), n = GENERATE(1, 2, 33, 300);
  const Tensor t = s.of(Values(600, 9), {600}, Dtype::f32);
  kernel::normal({.seed = 7, .stream = 3, .mean = 0.25, .deviation = 1.5}, begin,
                 t.slice(begin, {n}));
  const Values part = values_of(t);
  for (int64_t i = 0; i < 600; ++i)
    REQUIRE(part[size_t(i)] == (i >= begin && i < begin + n ? whole[size_t(i)] : 9));
}
