// How much workspace the kernels of this folder want. Plain C++: a dry run asks it on machines
// without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tensor/backend.h"

namespace zl {

// [B] What cuBLAS may use of ours: its own recommendation for Hopper.
constexpr int64_t kMatmulWorkspace = int64_t(32) << 20;

// layer_norm_backward adds its rows up in so many parts, then the parts in order.
inline int64_t layer_norm_parts(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

// Every 16 blocks of 1,024 elements have one sum in the workspace of sum_of_squares.
constexpr int64_t kSquaresPerSum = 16 * 1024;
inline int64_t sums_of_squares(int64_t n) { return (n + kSquaresPerSum - 1) / kSquaresPerSum; }

// [B] The answer of Backend::workspace.
int64_t cuda_workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype);

}  // namespace zl
