// The workspace of the kernels of this folder, and how they pad. Plain C++: dry runs need it
// without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tensor/backend.h"

namespace zl {

// [B] The workspace of cuBLAS: NVIDIA's recommendation for Hopper.
constexpr int64_t kMatmulWorkspace = int64_t(32) << 20;

// The number of partial sums over rows in sum_rows and layer_norm_backward. It depends on the shape
// only, so that the order of the additions does too.
inline int64_t parts_of_rows(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

// [n] Elements per partial sum in the workspace of sums_of_squares: 16 blocks of 1,024.
constexpr int64_t kSquaresPerSum = 16 * 1024;
inline int64_t parts_of_squares(int64_t n) { return (n + kSquaresPerSum - 1) / kSquaresPerSum; }

// [n] The answer of Backend::padded_columns: 16 bytes of 16-bit elements.
inline int64_t cuda_padded_columns(int64_t n) { return round_up(n, 8); }

// [B] The answer of Backend::workspace.
int64_t cuda_workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype);

}  // namespace zl
