// Matrix product and the sum of rows: a linear layer, forward and backward.
//
//   Y  = X W + 1 b^T       matmul with a bias b, which is added to every row
//   dX = dY W^T            matmul
//   dW += X^T dY           matmul that adds
//   db += dY^T 1           sum_rows
//
// Each dX_ij is the sum over the outputs that X_ij reaches: Y_ik contains X_ij W_jk, so
// dX_ij = sum_k dY_ik W_jk. In the same way dW_jk = sum_i X_ij dY_ik. As in Goodfellow et al. 2016,
// Deep Learning, section 6.5.6.
//
// bf16 and f16 are converted to fp32, multiplied there, and the result is rounded once.
#include <type_traits>

#include "tensor/reference/kernel_call.h"
#include "tensor/reference/product.h"

namespace zl {
namespace {

using reference::convert;
using reference::Matrix;

// The operand as it is stored, in the compute type.
template <class T, class F>
Matrix<F> matrix(const Factor& factor, F*& workspace) {
  const Tensor& t = factor.tensor;
  if constexpr (std::is_same_v<T, F>) {
    return {t.data<T>().data(), t.rows(), t.dim(-1), factor.transpose};
  } else {
    F* const converted = workspace;
    workspace += t.numel();
    convert(t.data<T>().data(), converted, t.numel());
    return {converted, t.rows(), t.dim(-1), factor.transpose};
  }
}

template <class T, class F>
void add_to_every_row(const T* bias, const Matrix<F>& m) {
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.columns; ++c) m[r][c] += F(bias[c]);
}

}  // namespace

void kernel::matmul(Factor fa, Factor fb, const Tensor& bias, const Tensor& out, Write write) {
  const auto& [a, ta] = fa;
  const auto& [b, tb] = fb;
  const bool a_turned = ta == Transpose::yes, b_turned = tb == Transpose::yes;
  const int64_t m = out.rows(), k = b_turned ? b.dim(-1) : b.rows(),
                n = b_turned ? b.rows() : b.dim(-1);
  const auto fits = [&out = out](int64_t stored, int64_t columns) {
    return stored == columns || stored == out.backend().padded_columns(columns);
  };
  if (a.rows() != (a_turned ? k : m) || !fits(a.dim(-1), a_turned ? m : k) || !fits(out.dim(-1), n))
    refuse("matmul: (", a_turned ? a.dim(-1) : a.rows(), ", ", a_turned ? a.rows() : a.dim(-1),
           ")(", k, ", ", n, ") cannot give ", to_string(out.shape()));
  if (a.dtype() != b.dtype() || a.dtype() != out.dtype() || !is_float(a.dtype()))
    refuse("matmul: types ", name(a.dtype()), ", ", name(b.dtype()), " and ", name(out.dtype()),
           " must be one float type");
  if (bias.defined() && write != Write::set) refuse("matmul: a bias needs Write::set");
  if (bias.defined()) require_is("matmul", "the bias", bias, n, out.dtype());
  recorded("matmul", out, 2 * m * n * k, {&a, &b, &out})
      .matmul(fa, fb, bias, out, write, workspace(KernelId::matmul, {m, n, k}, out));
}

void Backend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                     const Tensor& workspace) {
  if (out.numel() == 0) return;
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    F* free = workspace.defined() ? static_cast<F*>(workspace.address()) : nullptr;
    const Matrix<F> A = matrix<T>(a, free), B = matrix<T>(b, free),
                    C = matrix<T>({out, Transpose::no}, free);
    product(A, B, C, write);
    if (bias.defined()) add_to_every_row(bias.data<T>().data(), C);
    if constexpr (!std::is_same_v<T, F>) convert(C.data, out.data<T>().data(), out.numel());
  });
}

void kernel::sum_rows(const Tensor& x, const Tensor& out) {
  require_is("sum_rows", "out", out, x.dim(-1), x.dtype());
  recorded("sum_rows", out, x.numel(), {&x, &out})
      .sum_rows(x, out, workspace(KernelId::sum_rows, {x.rows(), x.dim(-1)}, out));
}

// The rows are added in their order; their sum is added to `out` once.
void Backend::sum_rows(const Tensor& x, const Tensor& out, const Tensor&) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const auto rows = x.data<T>(), sums = out.data<T>();
    const size_t N = sums.size();
    for (size_t n = 0; n < N; ++n) {
      F sum = 0;
      for (size_t i = n; i < rows.size(); i += N) sum += F(rows[i]);
      sums[n] = T(F(sums[n]) + sum);
    }
  });
}

}  // namespace zl
