// Matmuls whose sizes are no multiples of 8, which are computed in parts. All elements are small
// whole numbers: sums in fp32 are exact in any order, so every digit of the result is known.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/cuda/on_cpu/launches.h"

using namespace zl;
using namespace zl::test;

namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct MatmulCase {
  int64_t M, N, K;
  Transpose ta = Transpose::no, tb = Transpose::no;
};

struct Matrix {
  int64_t rows, columns;
  Values values;
  double at(Transpose t, int64_t r, int64_t c) const {
    return values[size_t(t == Transpose::no ? r * columns + c : c * columns + r)];
  }
};

// Elements -1, 0 and 1.
Matrix whole_numbers(Transpose t, int64_t rows, int64_t columns, uint64_t stream) {
  if (t == Transpose::yes) std::swap(rows, columns);
  Values values = random_values(rows * columns, stream);
  for (double& v : values) v = std::clamp(std::round(v), -1.0, 1.0);
  return {rows, columns, std::move(values)};
}

// The tensor has rows of `stored` elements, NaN between its rows, and NaN before and after it.
Tensor among_nan(Side& s, const Matrix& m, int64_t stored, Dtype dtype) {
  constexpr int64_t around = 64;
  Values all(size_t(around), kNan);
  for (int64_t r = 0; r < m.rows; ++r) {
    all.insert(all.end(), m.values.begin() + r * m.columns, m.values.begin() + (r + 1) * m.columns);
    all.insert(all.end(), size_t(stored - m.columns), kNan);
  }
  all.insert(all.end(), size_t(around), kNan);
  return s.of(all, {int64_t(all.size())}, dtype).slice(around, {m.rows, stored});
}

// The result without its padding, which must be -infinity. `before`: what it is added to.
Values product(const MatmulCase& c, const Matrix& a, const Matrix& b, const Matrix* before,
               Dtype dtype) {
  Side s(test_gpu());
  const auto padded = [&](int64_t n) { return test_gpu().padded_columns(n); };
  const Tensor out =
      before ? among_nan(s, *before, padded(c.N), dtype) : s.nan({c.M, padded(c.N)}, dtype);
  kernel::matmul({among_nan(s, a, padded(a.columns), dtype), c.ta},
                 {among_nan(s, b, b.columns, dtype), c.tb}, {}, out,
                 before ? Write::add : Write::set);
  const Values stored = values_of(out);
  Values values;
  for (int64_t i = 0; i < int64_t(stored.size()); ++i)
    if (i % padded(c.N) < c.N)
      values.push_back(stored[size_t(i)]);
    else
      CHECK(stored[size_t(i)] == -std::numeric_limits<double>::infinity());
  return values;
}

// The exact result, rounded to the type.
Values expected(const MatmulCase& c, const Matrix& a, const Matrix& b, const Matrix* before,
                Dtype dtype) {
  Values values;
  for (int64_t i = 0; i < c.M; ++i)
    for (int64_t j = 0; j < c.N; ++j) {
      double sum = before ? before->at(Transpose::no, i, j) : 0;
      for (int64_t k = 0; k < c.K; ++k) sum += a.at(c.ta, i, k) * b.at(c.tb, k, j);
      for_float_type(dtype, [&]<class T>(T) { sum = double(Compute<T>(T(Compute<T>(sum)))); });
      values.push_back(sum);
    }
  return values;
}

void check_matmul(const MatmulCase& c, Dtype dtype, bool adds) {
  require_gpu();
  CAPTURE(name(dtype), adds, c.M, c.N, c.K, c.ta, c.tb);
  const Matrix a = whole_numbers(c.ta, c.M, c.K, 1), old = whole_numbers({}, c.M, c.N, 3);
  Matrix b = whole_numbers(c.tb, c.K, c.N, 2);
  const Matrix* before = adds ? &old : nullptr;
  const Values exact = expected(c, a, b, before, dtype);
  CHECK(product(c, a, b, before, dtype) == exact);
  b.values.back() += 1;  // the twin: the last element, which belongs to all the rests
  CHECK(product(c, a, b, before, dtype) != exact);
}

}  // namespace

TEST_CASE("on the GPU the three products of a head are exact for any vocabulary", "[cuda]") {
  SettingsRow pick = any_pair({6, 3, 4, 2});
  const int64_t V = pick.next({50257, 257, 15, 8, 7, 1}), R = 13, C = 24;
  const MatmulCase c = pick.next<MatmulCase>({{R, V, C, Transpose::no, Transpose::yes},
                                              {R, C, V},
                                              {V, C, R, Transpose::yes, Transpose::no}});
  const Dtype dtype = next_float_type(pick);
  check_matmul(c, dtype, pick.next({false, true}));
}

TEST_CASE("on the GPU products are exact if rows, columns and depth are odd together", "[cuda]") {
  SettingsRow pick = any_pair({3, 2, 2, 4, 2});
  MatmulCase c = pick.next<MatmulCase>({{17, 23, 29}, {9, 257, 131}, {103, 9, 7}});
  c.ta = pick.next({Transpose::no, Transpose::yes});
  c.tb = pick.next({Transpose::no, Transpose::yes});
  const Dtype dtype = next_float_type(pick);
  check_matmul(c, dtype, pick.next({false, true}));
}

TEST_CASE("products of logits have parts that cuBLAS can read 16 bytes at a time", "[cuda][host]") {
  struct Expected {
    MatmulCase sizes;
    int64_t products;
  };
  const Expected e = GENERATE(
      Expected{{16, 257, 24, Transpose::no, Transpose::yes}, 2}, Expected{{16, 24, 257}, 2},
      Expected{{257, 24, 16, Transpose::yes, Transpose::no}, 2}, Expected{{16, 259, 257}, 4},
      // A whole number of 16 bytes, fewer than that, and a size along which nothing is stored.
      Expected{{16, 256, 24}, 1}, Expected{{16, 7, 24}, 1}, Expected{{15, 24, 24}, 1});
  cuda_on_cpu::launches = {};
  product(e.sizes, whole_numbers(e.sizes.ta, e.sizes.M, e.sizes.K, 1),
          whole_numbers(e.sizes.tb, e.sizes.K, e.sizes.N, 2), nullptr, Dtype::bf16);
  CHECK(cuda_on_cpu::launches.products == e.products);
  CHECK(cuda_on_cpu::launches.unaligned_sizes == 0);
}
