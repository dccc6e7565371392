// Matmul by cuBLAS, in our workspace: cuBLAS allocates nothing, and every byte is counted.
#include <cublas_v2.h>

#include <limits>

#include "tensor/cuda/launch.h"
#include "tensor/platform/shared_library.h"

#ifdef ZEROLAB_CUDA_ON_CPU
#define ZL_BLAS(name) name
#else
#define ZL_BLAS(name) file.function(ZL_TEXT(name))
#define ZL_TEXT(name) #name  // after expansion: cublasCreate is a macro for cublasCreate_v2
#endif

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

void require_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": cuBLAS says: " + cublas().status_string(status));
}

cudaDataType_t blas_type(Dtype dtype) {
  return dtype == Dtype::f64    ? CUDA_R_64F
         : dtype == Dtype::f32  ? CUDA_R_32F
         : dtype == Dtype::bf16 ? CUDA_R_16BF
                                : CUDA_R_16F;
}

// cuBLAS is column-major and sees our matrices transposed. So it computes out^T = b^T a^T.
struct Operand {
  const void* data;
  cublasOperation_t operation;
  int leading;  // [n] the length of a stored row
};

Operand operand(Factor f) {
  const int64_t row = f.tensor.dim(-1);
  return {device_address(f.tensor.address()),
          f.transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N, int(row)};
}

}  // namespace

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
  const Operand left = operand(b), right = operand(a);
  const cudaDataType_t type = blas_type(out.dtype());
  const bool in_double = out.dtype() == Dtype::f64;
  const bool tf32 = options_.tf32 && out.dtype() == Dtype::f32;
  const cublasComputeType_t compute = in_double ? CUBLAS_COMPUTE_64F
                                      : tf32    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                : CUBLAS_COMPUTE_32F;
  // The scalars have cuBLAS's compute type: fp32 also for bf16 and fp16.
  const double one = 1, beta = write == Write::add ? 1 : 0;
  const float one_float = 1, beta_float = float(beta);
  require_blas(
      cublas().set_workspace(blas_, device_address(workspace.address()), size_t(workspace.bytes())),
      "matmul");
  require_blas(
      cublas().gemm(blas_, left.operation, right.operation, int(N), int(M), int(K),
                    in_double ? static_cast<const void*>(&one) : &one_float, left.data, type,
                    left.leading, right.data, type, right.leading,
                    in_double ? static_cast<const void*>(&beta) : &beta_float,
                    device_address(out.address()), type, int(row), compute, CUBLAS_GEMM_DEFAULT),
      "matmul");
  if (bias.defined()) add_bias(bias, out);
  set_padding(N, out);
}

}  // namespace zl::ZEROLAB_CUDA
