// The workspace of the kernels of this folder. Plain C++: dry runs need it without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tensor/backend.h"

namespace zl {

// [B] The workspace of cuBLAS: NVIDIA's recommendation for Hopper.
constexpr int64_t kMatmulWorkspace = int64_t(32) << 20;

// The number of partial sums over rows in layer_norm_backward.
inline int64_t layer_norm_parts(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

// [n] Elements per partial sum in the workspace of sum_of_squares: 16 blocks of 1,024.
constexpr int64_t kSquaresPerSum = 16 * 1024;
inline int64_t sums_of_squares(int64_t n) { return (n + kSquaresPerSum - 1) / kSquaresPerSum; }

// [B] The answer of Backend::workspace.
int64_t cuda_workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype);

}  // namespace zl
