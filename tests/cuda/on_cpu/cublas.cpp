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
    const size_t i = transposed ? size_t(row) * size_t(leading) + size_t(column)
                                : size_t(column) * size_t(leading) + size_t(row);
    return double(zl::Compute<T>(static_cast<const T*>(data)[i]));
  }
};

// Rounds to TF32: 10 bits of fraction, to nearest.
double to_tf32(double value) {
  float f = float(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof f);
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t(0x1fff);
  std::memcpy(&f, &bits, sizeof f);
  return double(f);
}

void run_gemm(const GemmCall& g, double alpha, double beta) {
  const Matrix left{g.a, g.lda, g.op_a == CUBLAS_OP_T}, right{g.b, g.ldb, g.op_b == CUBLAS_OP_T};
  const bool tf32 = g.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto read = [&](double value) { return tf32 ? to_tf32(value) : value; };
  for_type(g.type_a, [&](auto type) {
    using T = decltype(type);
    for (int j = 0; j < g.n; ++j)
      for (int i = 0; i < g.m; ++i) {
        double sum = 0;
        for (int l = 0; l < g.k; ++l) sum += read(left.at<T>(i, l)) * read(right.at<T>(l, j));
        T& out = static_cast<T*>(g.c)[size_t(j) * size_t(g.ldc) + size_t(i)];
        // With beta = 0 the old value may be anything.
        const double before = beta == 0 ? 0 : beta * double(zl::Compute<T>(out));
        out = T(zl::Compute<T>(alpha * sum + before));
      }
  });
}

}  // namespace

// Reads scalars now, as cuBLAS reads those of the host, and matrices when the stream executes it.
cublasStatus_t enqueue_gemm(cublasHandle_t handle, const GemmCall& g) {
  if (g.lda < (g.op_a == CUBLAS_OP_T ? g.k : g.m) || g.ldb < (g.op_b == CUBLAS_OP_T ? g.n : g.k) ||
      g.ldc < g.m)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto scalar = [&](const void* s) {
    return g.compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(s)
                                           : double(*static_cast<const float*>(s));
  };
  zl::cuda_on_cpu::enqueue(handle->stream, [g, alpha = scalar(g.alpha), beta = scalar(g.beta)] {
    run_gemm(g, alpha, beta);
  });
  return CUBLAS_STATUS_SUCCESS;
}
