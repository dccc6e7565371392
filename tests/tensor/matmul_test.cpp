#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "tensor/cpu/gemm.h"
#include "tests/tensor/cpu_case.h"

namespace {

using namespace zl;
using namespace zl::test;

constexpr Transpose kTransposes[] = {Transpose::no, Transpose::yes};

struct MatmulProblem {
  int64_t m, n, k;
  Transpose ta = Transpose::no, tb = Transpose::no;
  Write write = Write::set;
  Dtype dtype = Dtype::f32;
};

struct MatmulInputs {
  Tensor a, b, c, bias = {};
};

MatmulInputs inputs(Cpu& cpu, const MatmulProblem& p) {
  const Shape a = p.ta == Transpose::no ? Shape{p.m, p.k} : Shape{p.k, p.m};
  const Shape b = p.tb == Transpose::no ? Shape{p.k, p.n} : Shape{p.n, p.k};
  const Tensor c = p.write == Write::set ? cpu.nan({p.m, p.n}, p.dtype)
                                         : cpu.of(random_values(p.m * p.n, 3), {p.m, p.n}, p.dtype);
  return {cpu.of(random_values(p.m * p.k, 1), a, p.dtype),
          cpu.of(random_values(p.k * p.n, 2), b, p.dtype), c};
}

Values multiply(Cpu& cpu, const MatmulProblem& p, const MatmulInputs& in) {
  const GuardedWorkspace workspace(cpu, KernelId::matmul, {p.m, p.n, p.k}, p.dtype);
  cpu.backend.matmul({in.a, p.ta}, {in.b, p.tb}, in.bias, in.c, p.write, workspace);
  CHECK(workspace.intact());
  return doubles(in.c);
}

// The largest excess of |value - reference in f64| over the tolerance for rounding.
double excess(MatmulProblem p, const MatmulInputs& in, const Values& before, const Values& result) {
  Cpu reference(reference_backend());
  const Dtype dtype = std::exchange(p.dtype, Dtype::f64);
  // The product, or, for the size of the terms that were added, that of the magnitudes.
  const auto exact = [&](bool magnitudes) {
    const auto operand = [&](const Tensor& t, Values values) {
      for (double& v : values) v = magnitudes ? std::abs(v) : v;
      return reference.of(values, t.shape(), Dtype::f64);
    };
    MatmulInputs same{operand(in.a, doubles(in.a)), operand(in.b, doubles(in.b)),
                      p.write == Write::add ? operand(in.c, before) : operand(in.c, doubles(in.c))};
    if (in.bias.defined()) same.bias = operand(in.bias, doubles(in.bias));
    return multiply(reference, p, same);
  };
  const Values sum = exact(false), size = exact(true);
  double worst = -1;
  for (size_t i = 0; i < result.size(); ++i) {
    const double allowed =
        compute_epsilon(dtype) * double(p.k + 1) * size[i] + epsilon(dtype) * std::abs(sum[i]);
    const double beyond = std::abs(result[i] - sum[i]) - allowed;
    worst = std::isnan(beyond) ? 1e9 : std::max(worst, beyond);
  }
  return worst;
}

TEST_CASE("matmul agrees with the reference in f64 in every type, transposed or not, set or added",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  constexpr std::array<int64_t, 3> sizes[] = {
      {1, 1, 1},      {1, 65, 33}, {3, 7, 17},     {17, 33, 130}, {65, 1, 7}, {130, 65, 3},
      {33, 130, 257}, {4, 24, 8},  {67, 151, 300}, {1, 1, 513},   {5, 40, 1}};
  for (const Dtype dtype : kTypes) {
    for (const auto& [m, n, k] : sizes) {
      for (int variant = 0; variant < 8; ++variant) {
        const Transpose ta = kTransposes[variant & 1], tb = kTransposes[variant >> 1 & 1];
        const MatmulProblem p{m, n, k, ta, tb, Write(variant >> 2), dtype};
        const MatmulInputs in = inputs(cpu, p);
        const Values before = doubles(in.c);
        CAPTURE(name(dtype), m, n, k, variant);
        Values result = multiply(cpu, p, in);
        CHECK(excess(p, in, before, result) <= 0);
        result[0] += 0.1 + 4 * epsilon(dtype) * double(k);
        CHECK(excess(p, in, before, result) > 0);
      }
    }
  }
}

TEST_CASE("a bias is added to every row of a matmul, in every type and across the edges of panels",
          "[tensor]") {
  Cpu cpu(any_host_backend());
  constexpr std::array<int64_t, 3> sizes[] = {{1, 1, 1},     {5, 33, 0},   {17, 31, 130},
                                              {65, 32, 513}, {29, 545, 7}, {260, 801, 1030}};
  for (const Dtype dtype : kTypes) {
    for (const auto& [m, n, k] : sizes) {
      const MatmulProblem p{m, n, k, Transpose::no, kTransposes[n & 1], Write::set, dtype};
      MatmulInputs in = inputs(cpu, p);
      in.bias = cpu.of(random_values(n, 4), {n}, dtype);
      CAPTURE(name(dtype), m, n, k);
      const Values result = multiply(cpu, p, in);
      CHECK(excess(p, in, {}, result) <= 0);
      in.bias = {};
      CHECK(excess(p, in, {}, result) > 0);
    }
  }
}

TEST_CASE("matmul agrees with the reference in f64 across the edges of its blocks and panels",
          "[tensor]") {
  Cpu cpu;
  for (const MatmulProblem& p :
       {MatmulProblem{301, 1601, 600},
        MatmulProblem{601, 800, 1100, Transpose::yes, Transpose::yes, Write::add},
        MatmulProblem{600, 530, 700, Transpose::no, Transpose::yes, Write::add, Dtype::bf16}}) {
    const MatmulInputs in = inputs(cpu, p);
    const Values before = doubles(in.c);
    CHECK(excess(p, in, before, multiply(cpu, p, in)) <= 0);
  }
}

TEST_CASE("matmul with nothing to sum sets zeros or adds nothing, and may be empty", "[tensor]") {
  Cpu cpu(any_host_backend());
  for (const Dtype dtype : kTypes) {
    CHECK(multiply(cpu, {2, 3, 0, {}, {}, Write::set, dtype},
                   inputs(cpu, {2, 3, 0, {}, {}, Write::set, dtype})) == Values(6, 0.0));
    const MatmulProblem add{2, 3, 0, {}, {}, Write::add, dtype};
    const MatmulInputs in = inputs(cpu, add);
    const Values before = doubles(in.c);
    CHECK(multiply(cpu, add, in) == before);
    CHECK(multiply(cpu, {0, 3, 4, {}, {}, Write::set, dtype},
                   inputs(cpu, {0, 3, 4, {}, {}, Write::set, dtype}))
              .empty());
    CHECK(multiply(cpu, {3, 0, 4, {}, {}, Write::set, dtype},
                   inputs(cpu, {3, 0, 4, {}, {}, Write::set, dtype}))
              .empty());
  }
}

TEST_CASE("a row of a matmul has the same bits for every number of rows", "[tensor]") {
  Cpu cpu;
  for (const Dtype dtype : kTypes) {
    const MatmulProblem all{70, 151, 300, {}, {}, Write::set, dtype};
    const MatmulInputs in = inputs(cpu, all);
    const Values whole = multiply(cpu, all, in);
    for (const int64_t rows : {1, 2, 3, 5, 64}) {
      MatmulProblem some = all;
      some.m = rows;
      for (const int64_t first : {int64_t(0), 70 - rows}) {
        const MatmulInputs part{in.a.slice(first * all.k, {rows, all.k}), in.b,
                                cpu.nan({rows, all.n}, dtype)};
        const Values expected(whole.begin() + first * all.n,
                              whole.begin() + (first + rows) * all.n);
        CHECK(multiply(cpu, some, part) == expected);
      }
    }
    const MatmulInputs other{cpu.of(random_values(70 * 300, 9), {70, 300}, dtype), in.b,
                             cpu.nan({70, 151}, dtype)};
    CHECK(multiply(cpu, all, other) != whole);
  }
}

TEST_CASE("a column of a matmul has the same bits for every number of columns", "[tensor]") {
  Cpu cpu;
  const MatmulProblem all{37, 200, 300, Transpose::no, Transpose::yes};
  const MatmulInputs in = inputs(cpu, all);
  const Values whole = multiply(cpu, all, in);
  for (const int64_t columns : {1, 7, 8, 17, 24, 33, 65, 128}) {
    MatmulProblem some = all;
    some.n = columns;
    const MatmulInputs part{in.a, in.b.slice(all.k, {columns, all.k}),
                            cpu.nan({37, columns}, Dtype::f32)};  // from column 1 on
    Values expected;
    for (int64_t r = 0; r < all.m; ++r)
      expected.insert(expected.end(), whole.begin() + r * 200 + 1,
                      whole.begin() + r * 200 + 1 + columns);
    CHECK(multiply(cpu, some, part) == expected);
  }
}

// The first element of a vector at a multiple of 64 bytes.
template <class T>
T* aligned(std::vector<T>& v) {
  return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / sizeof(T);
}

TEST_CASE("gemm multiplies parts of wider matrices and does not write between their rows",
          "[tensor]") {
  constexpr int64_t m = 13, n = 27, k = 19, stride_a = 30, stride_b = 41, stride_c = 33;
  const Values a = random_values(m * stride_a, 1), b = random_values(k * stride_b, 2);
  Values c(size_t(m * stride_c), 7.0), workspace(size_t(gemm_workspace(m, n, k) + 8));
  const GemmFactor<double> left{a.data() + 2, stride_a}, right{b.data() + 3, stride_b};
  gemm<double>({m, n, k, left, right, c.data() + 4, stride_c, Write::add, 0.5, aligned(workspace)});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < stride_c; ++j) {
      double expected = 7;
      for (int64_t l = 0; l < k && j >= 4 && j < 4 + n; ++l)
        expected += 0.5 * a[size_t(i * stride_a + l + 2)] * b[size_t(l * stride_b + j - 4 + 3)];
      CHECK(std::abs(c[size_t(i * stride_c + j)] - expected) < 1e-13);
    }
  }
}

// Bits must not depend on the stride of rows. It decides whether gemm copies rows first.
TEST_CASE("gemm gives the same bits whether it reads rows in place or copies them", "[tensor]") {
  constexpr int64_t m = 37, n = 45, k = 700, near = 1024,
                    far = 1025;  // [n] of fp32: 4 KiB, and not a multiple of it
  const auto multiply_at = [&](int64_t stride, Transpose transpose) {
    const int64_t rows = transpose == Transpose::yes ? k : m,
                  columns = transpose == Transpose::yes ? m : k;
    std::vector<float> a(size_t(rows * stride)), b(size_t(k * n)), c(size_t(m * n)),
        workspace(size_t(gemm_workspace(m, n, k) + 16));
    const Values values = random_values(rows * columns, 1), right = random_values(k * n, 2);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i)
        a[size_t(r * stride + i)] = float(values[size_t(r * columns + i)]);
    std::ranges::copy(right, b.begin());
    const GemmFactor<float> left{a.data(), stride, transpose}, other{b.data(), n};
    gemm<float>({m, n, k, left, other, c.data(), n, Write::set, 1, aligned(workspace)});
    return c;
  };
  CHECK(multiply_at(near, Transpose::no) == multiply_at(far, Transpose::no));
  CHECK(multiply_at(near, Transpose::yes) == multiply_at(far, Transpose::yes));
  CHECK(multiply_at(near, Transpose::no) != multiply_at(near, Transpose::yes));  // other values
}

TEST_CASE("a packed factor can be multiplied by its first rows and columns", "[tensor]") {
  constexpr int64_t rows = 700, columns = 77, m = 15;
  const Values a = random_values(m * rows + 1, 1), b = random_values(rows * columns, 2);
  Values packed(size_t(packed_elements(rows, columns) + 8)),
      space(size_t(gemm_workspace(m, columns, rows) + 8));
  for (const Transpose across : kTransposes) {
    const GemmFactor<double> right{b.data(), across == Transpose::yes ? rows : columns, across};
    pack(right, rows, columns, aligned(packed));
    for (const int64_t k : {1, 511, 513, 700}) {
      for (const int64_t n : {1, 31, 64, 77}) {
        Values part(size_t(m * n)), whole(size_t(m * n));
        const GemmFactor<double> left{a.data(), rows}, moved{a.data() + 1, rows};
        gemm_packed<double>({m, n, k, left, aligned(packed), rows, part.data(), n, Write::set, 0.5,
                             aligned(space)});
        gemm<double>({m, n, k, left, right, whole.data(), n, Write::set, 0.5, aligned(space)});
        CHECK(part == whole);
        gemm<double>({m, n, k, moved, right, whole.data(), n, Write::set, 0.5, aligned(space)});
        CHECK(part != whole);
      }
    }
  }
}

TEST_CASE("the workspace of a matmul stays small for large matrices", "[tensor]") {
  for (const Dtype dtype : kTypes) {
    const auto bytes = [&](int64_t m, int64_t n, int64_t k) {
      return cpu_backend().workspace(KernelId::matmul, std::array{m, n, k}, dtype);
    };
    CHECK(bytes(4096, 50257, 768) == bytes(8192, 100000, 50257));
    CHECK(bytes(4096, 50257, 768) <= 8 << 20);
    CHECK(bytes(64, 64, 64) < bytes(4096, 50257, 768));
  }
}

}  // namespace
