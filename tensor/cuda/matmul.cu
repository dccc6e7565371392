// Matmul by cuBLAS, in our workspace: cuBLAS allocates nothing, and every byte is counted.
#include <limits>

#include "tensor/cuda/blas.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// cuBLAS's functions, with the types of its header. The library is opened with the first GPU: it
// takes 600 MiB to map and relocate, and programs also run without a GPU.
struct Cublas {
#ifndef ZEROLAB_CUDA_ON_CPU
  SharedLibrary file{"cuBLAS", str("libcublas.so.", CUBLAS_VER_MAJOR), ZEROLAB_CUBLAS_FOLDER};
#endif
  decltype(&cublasCreate) create = ZL_BLAS(cublasCreate);
  decltype(&cublasDestroy) destroy = ZL_BLAS(cublasDestroy);
  decltype(&cublasGetStatusString) status_string = ZL_BLAS(cublasGetStatusString);
  decltype(&cublasSetStream) set_stream = ZL_BLAS(cublasSetStream);
  decltype(&cublasSetMathMode) set_math_mode = ZL_BLAS(cublasSetMathMode);
  decltype(&cublasSetWorkspace) set_workspace = ZL_BLAS(cublasSetWorkspace);
  // The header overloads this name, so the type selects the function.
  using Gemm =
      decltype(static_cast<cublasStatus_t (*)(
                   cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                   const void*, cudaDataType_t, int, const void*, cudaDataType_t, int, const void*,
                   void*, cudaDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t)>(
          &cublasGemmEx));
  Gemm gemm = ZL_BLAS(cublasGemmEx);
};

const Cublas& cublas() {
  static const Cublas functions;
  return functions;
}

cudaDataType_t blas_type(Dtype dtype) {
  return dtype == Dtype::f64    ? CUDA_R_64F
         : dtype == Dtype::f32  ? CUDA_R_32F
         : dtype == Dtype::bf16 ? CUDA_R_16BF
                                : CUDA_R_16F;
}

Product::Operand operand(Factor f) {
  return {device_address(f.tensor.address()),
          f.transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N, int(f.tensor.dim(-1))};
}

}  // namespace

void require_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": cuBLAS says: " + cublas().status_string(status));
}

cublasContext* make_blas(CUstream_st* stream) {
  cublasHandle_t blas = nullptr;
  require_blas(cublas().create(&blas), "cannot use cuBLAS");
  require_blas(cublas().set_stream(blas, stream), "cannot use cuBLAS");
  // By default cuBLAS may split the sums of bf16 and fp16 matrices, and add the parts in bf16 or
  // fp16.
  require_blas(cublas().set_math_mode(
                   blas, cublasMath_t(int(CUBLAS_DEFAULT_MATH) |
                                      int(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION))),
               "cannot use cuBLAS");
  return blas;
}

void destroy_blas(cublasContext* blas) { cublas().destroy(blas); }

namespace {
void gemm(cublasHandle_t blas, const Product& p, Write write, void* workspace, int64_t bytes) {
  // The scalars have cuBLAS's compute type: fp32 also for bf16 and fp16.
  const double one = 1, beta = write == Write::add ? 1 : 0;
  const float one_float = 1, beta_float = float(beta);
  const bool in_double = p.compute == CUBLAS_COMPUTE_64F;
  require_blas(cublas().set_workspace(blas, workspace, size_t(bytes)), "matmul");
  require_blas(cublas().gemm(blas, p.left.operation, p.right.operation, p.rows, p.columns, p.depth,
                             in_double ? static_cast<const void*>(&one) : &one_float, p.left.data,
                             p.type, p.left.leading, p.right.data, p.type, p.right.leading,
                             in_double ? static_cast<const void*>(&beta) : &beta_float, p.out,
                             p.type, p.leading, p.compute, CUBLAS_GEMM_DEFAULT),
               "matmul");
}
}  // namespace

void CudaBackend::matmul(Factor a, Factor b, const Tensor& bias, const Tensor& out, Write write,
                         const Tensor& workspace) {
  const bool b_turned = b.transpose == Transpose::yes;
  const int64_t M = out.rows(), N = b_turned ? b.tensor.rows() : b.tensor.dim(-1),
                K = b_turned ? b.tensor.dim(-1) : b.tensor.rows(), row = out.dim(-1);
  if (M == 0 || N == 0) return;
  if (K == 0) {  // empty sums
    if (write == Write::set) fill(0, out);
    if (bias.defined()) add_bias(bias, out);
    return set_padding(N, out);
  }
  constexpr int64_t most = std::numeric_limits<int>::max();
  require(M <= most && row <= most && K <= most, "matmul: (", M, ", ", K, ")(", K, ", ", N,
          ") exceeds the sizes that cuBLAS can count");
  const bool in_double = out.dtype() == Dtype::f64;
  const bool tf32 = options_.tf32 && out.dtype() == Dtype::f32;
  // cuBLAS is column-major and sees our matrices transposed. So it computes out^T = b^T a^T.
  const Product product{.left = operand(b),
                        .right = operand(a),
                        .rows = int(N),
                        .columns = int(M),
                        .depth = int(K),
                        .type = blas_type(out.dtype()),
                        .compute = in_double ? CUBLAS_COMPUTE_64F
                                   : tf32    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                             : CUBLAS_COMPUTE_32F,
                        .out = device_address(out.address()),
                        .leading = int(row)};
  void* const scratch = device_address(workspace.address());
  const void* const added = bias.defined() ? device_address(bias.address()) : nullptr;
  if (!added || !bias_products_->enqueue(product, added, scratch, stream())) {
    gemm(blas_, product, write, scratch, workspace.bytes());
    if (added) add_bias(bias, out);
  }
  set_padding(N, out);
}

}  // namespace zl::ZEROLAB_CUDA
