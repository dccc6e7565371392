// The part of cuBLAS that tensor/cuda uses, as plain loops on the CPU.
#pragma once

#include <cuda_runtime.h>

enum cublasMath_t {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t mode = CUBLAS_DEFAULT_MATH;
};
using cublasHandle_t = cublasContext*;
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

inline const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                                 : "not supported";
}
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  return delete handle, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  return handle->stream = stream, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return handle->mode = mode, CUBLAS_STATUS_SUCCESS;
}
// cuBLAS's guide: "the workspace pointer must be aligned to at least 256 bytes, otherwise
// CUBLAS_STATUS_INVALID_VALUE error is returned".
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* workspace, size_t) {
  return uintptr_t(workspace) % 256 == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
// The arguments of cublasGemmEx, in its order: C (m, n) = alpha op(A) (m, k) op(B) (k, n) + beta C,
// column-major.
struct GemmCall {
  cublasOperation_t op_a, op_b;
  int m, n, k;
  const void* alpha;
  const void* a;
  cudaDataType_t type_a;
  int lda;
  const void* b;
  cudaDataType_t type_b;
  int ldb;
  const void* beta;
  void* c;
  cudaDataType_t type_c;
  int ldc;
  cublasComputeType_t compute;
  cublasGemmAlgo_t algorithm;
};
// How a product is added up.
struct GemmSums {
  int parts = 1;  // sums over K ("split-K"), which are rounded, and then added in order
  bool in_output_type = false;  // parts are rounded to the type of C, not to fp32
  const void* bias = nullptr;   // (m), added to each column before it is rounded to C's type
};
void run_gemm(const GemmCall& call, const GemmSums& sums, double alpha, double beta);
// cuBLAS chooses a kernel by the shape and the types, and the driver loads it at its first launch.
const void* kernel_of(const GemmCall& call);
// Refuses the leading dimensions that cuBLAS refuses.
cublasStatus_t enqueue_gemm(cublasHandle_t handle, const GemmCall& call);
template <class... Arguments>
cublasStatus_t cublasGemmEx(cublasHandle_t handle, Arguments... arguments) {
  return enqueue_gemm(handle, {arguments...});
}
