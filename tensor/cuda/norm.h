// What cuda_backend.cu needs to know of norm.cu.
#pragma once

#include <cstdint>

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

// Every 16 blocks of 1,024 elements have one sum in the workspace of sum_of_squares.
constexpr int64_t kSquaresPerSum = 16 * 1024;
inline int64_t sums_of_squares(int64_t n) { return (n + kSquaresPerSum - 1) / kSquaresPerSum; }

}  // namespace zl::ZEROLAB_CUDA
