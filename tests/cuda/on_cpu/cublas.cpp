#include <cublas_v2.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "tensor/dtype.h"
#include "tests/cuda/on_cpu/devices.h"
#include "tests/cuda/on_cpu/launches.h"

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

// cublas_api.h: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION is a "flag to force any reductons
// to use the accumulator type and not output type". Without it, the products over K are split into
// this many sums of the output type.
constexpr int kSplits = 4;
// [n] CUBLAS_COMPUTE_32F_FAST_TF32 allows TF32; small products do not use it.
constexpr int64_t kFewProducts = int64_t(1) << 24;

}  // namespace

void run_gemm(const GemmCall& g, const GemmSums& sums, double alpha, double beta) {
  const Matrix left{g.a, g.lda, g.op_a == CUBLAS_OP_T}, right{g.b, g.ldb, g.op_b == CUBLAS_OP_T};
  const bool tf32 =
      g.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && int64_t(g.m) * g.n * g.k >= kFewProducts;
  const auto read = [&](double value) { return tf32 ? to_tf32(value) : value; };
  const int part = (g.k + sums.parts - 1) / sums.parts;
  for_type(g.type_a, [&](auto type) {
    using T = decltype(type);
    const auto in_t = [](double value) { return double(zl::Compute<T>(T(zl::Compute<T>(value)))); };
    const auto rounded = [&](double value) {
      return sums.in_output_type ? in_t(value) : double(zl::Compute<T>(value));
    };
    for (int j = 0; j < g.n; ++j)
      for (int i = 0; i < g.m; ++i) {
        const auto products = [&](int begin, int end) {
          double sum = 0;
          for (int l = begin; l < end; ++l) sum += read(left.at<T>(i, l)) * read(right.at<T>(l, j));
          return sum;
        };
        double sum = products(0, part);
        for (int l = part; l < g.k; l += part)
          sum = rounded(rounded(sum) + rounded(products(l, std::min(l + part, g.k))));
        T& out = static_cast<T*>(g.c)[size_t(j) * size_t(g.ldc) + size_t(i)];
        // With beta = 0 the old value may be anything.
        const double before = beta == 0 ? 0 : beta * double(zl::Compute<T>(out));
        const double added =
            sums.bias ? double(zl::Compute<T>(static_cast<const T*>(sums.bias)[i])) : 0;
        out = T(zl::Compute<T>(alpha * sum + before + added));
      }
  });
}

const void* kernel_of(const GemmCall& g) {
  using Shape = std::tuple<int, int, int, int, int, int, int>;
  static std::mutex mutex;
  static std::map<Shape, char> kernels;
  const std::lock_guard lock(mutex);
  return &kernels[{g.m, g.n, g.k, g.op_a, g.op_b, g.type_a, g.compute}];
}

// Reads scalars now, as cuBLAS reads those of the host, and matrices when the stream executes it.
cublasStatus_t enqueue_gemm(cublasHandle_t handle, const GemmCall& g) {
  if (g.lda < (g.op_a == CUBLAS_OP_T ? g.k : g.m) || g.ldb < (g.op_b == CUBLAS_OP_T ? g.n : g.k) ||
      g.ldc < g.m)
    return CUBLAS_STATUS_INVALID_VALUE;
  const int element = g.type_a == CUDA_R_64F ? 8 : g.type_a == CUDA_R_32F ? 4 : 2;
  auto& launches = zl::cuda_on_cpu::launches;
  ++launches.products;
  const int along_a = g.op_a == CUBLAS_OP_T ? g.k : g.m,
            along_b = g.op_b == CUBLAS_OP_T ? g.n : g.k;
  for (const auto& [size, leading] : {std::pair(along_a, g.lda), {along_b, g.ldb}, {g.m, g.ldc}}) {
    launches.unaligned_rows += leading * element % 16 != 0;
    launches.unaligned_sizes += leading % 8 == 0 && size > 8 && size % 8 != 0;
  }
  const auto scalar = [&](const void* s) {
    return g.compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(s)
                                           : double(*static_cast<const float*>(s));
  };
  if (!zl::cuda_on_cpu::begin_launch(kernel_of(g), handle->stream) && !zl::cuda_on_cpu::dead())
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const bool splits = !(handle->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  const GemmSums sums{.parts = splits ? kSplits : 1, .in_output_type = splits};
  zl::cuda_on_cpu::enqueue(handle->stream,
                           [g, sums, alpha = scalar(g.alpha), beta = scalar(g.beta)] {
                             run_gemm(g, sums, alpha, beta);
                           });
  return CUBLAS_STATUS_SUCCESS;
}
