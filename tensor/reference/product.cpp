// The only file that includes Eigen. CMake compiles it for the machine's instruction set, optimised
// in every build type, so that the bits are the same in Debug.
//
// Eigen's small products add in an order that depends on the address. A threshold of 0 switches
// them off: every product is a general one.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#include "tensor/reference/product.h"

#include <Eigen/Core>
#include <algorithm>

namespace zl::reference {

constexpr int64_t kColumns = 512;  // of the right factor at a time: Eigen copies them

template <class F>
void product(const Matrix<F>& a, const Matrix<F>& b, const Matrix<F>& c, Write write) {
  using RowMajor = Eigen::Matrix<F, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const RowMajor> A(a.data, a.rows, a.columns), B(b.data, b.rows, b.columns);
  Eigen::Map<RowMajor> C(c.data, c.rows, c.columns);
  if (write == Write::set) C.setZero();
  if (a.rows * a.columns == 0) return;  // nothing to add
  const auto multiply = [&](const auto& left, const auto& right) {
    for (int64_t first = 0; first < C.cols(); first += kColumns) {
      const int64_t n = std::min(kColumns, C.cols() - first);
      C.middleCols(first, n).noalias() += left * right.middleCols(first, n);
    }
  };
  const bool a_turned = a.transpose == Transpose::yes, b_turned = b.transpose == Transpose::yes;
  if (a_turned && b_turned)
    multiply(A.transpose(), B.transpose());
  else if (a_turned)
    multiply(A.transpose(), B);
  else if (b_turned)
    multiply(A, B.transpose());
  else
    multiply(A, B);
}

template void product(const Matrix<float>&, const Matrix<float>&, const Matrix<float>&, Write);
template void product(const Matrix<double>&, const Matrix<double>&, const Matrix<double>&, Write);

}  // namespace zl::reference
