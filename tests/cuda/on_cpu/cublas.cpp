#include <cublas_v2.h>

#include "tensor/dtype.h"

namespace {

template <class F>
void for_type(cudaDataType_t type, F&& f) {
  const zl::Dtype dtypes[] = {zl::Dtype::f32, zl::Dtype::f64, zl::Dtype::f16, zl::Dtype::bf16};
  zl::for_float_type(dtypes[type], f);
}

struct Matrix {
  const void* data;
  int leading;
  bool transposed;
  template <class T>
  double at(int row, int column) const {
    const size_t i = transposed ? size_t(row) * size_t(leading) + size_t(column) : size_t(column) * size_t(leading) + size_t(row);
    return double(zl::Compute<T>(static_cast<const T*>(data)[i]));
  }
};

}  // namespace

cublasStatus_t run_gemm(const GemmCall& g) {
  const Matrix left{g.a, g.lda, g.op_a == CUBLAS_OP_T}, right{g.b, g.ldb, g.op_b == CUBLAS_OP_T};
  if (g.lda < (left.transposed ? g.k : g.m) || g.ldb < (right.transposed ? g.n : g.k) || g.ldc < g.m) return CUBLAS_STATUS_INVALID_VALUE;
  const auto scalar = [&](const void* s) { return g.compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(s) : double(*static_cast<const float*>(s)); };
  const double alpha = scalar(g.alpha), beta = scalar(g.beta);
  for_type(g.type_a, [&](auto type) {
    using T = decltype(type);
    for (int j = 0; j < g.n; ++j)
      for (int i = 0; i < g.m; ++i) {
        double sum = 0;
        for (int l = 0; l < g.k; ++l) sum += left.at<T>(i, l) * right.at<T>(l, j);
        T& out = static_cast<T*>(g.c)[size_t(j) * size_t(g.ldc) + size_t(i)];
        const double before = beta == 0 ? 0 : beta * double(zl::Compute<T>(out));  // what beta 0 overwrites may be anything
        out = T(zl::Compute<T>(alpha * sum + before));
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}
