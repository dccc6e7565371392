// What cuda_backend.cu needs to know of matmul.cu and layer_norm.cu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

cublasContext* make_blas(CUstream_st* stream);
void drop_blas(cublasContext* blas);

// [B] What cuBLAS may use of ours: its own recommendation for Hopper.
constexpr int64_t kMatmulWorkspace = int64_t(32) << 20;

// Rows are added up in so many parts, then the parts in order.
inline int64_t layer_norm_parts(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

}  // namespace zl::ZEROLAB_CUDA
