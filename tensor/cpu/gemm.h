// Matrix products of the CPU kernels, row-major: C (M, N) = or += alpha * A (M, K) * B (K, N).
//
// One element of C is one chain of fused multiply-adds over k, cut into blocks of kDepthBlock. Its bits depend on its
// row of A and its column of B alone: not on M or N, on where the element lies, or on the alignment of a buffer.
#pragma once

#include <cstdint>

#include "tensor/backend.h"

namespace zl {

// A factor in memory: `stride` elements from one stored row to the next.
template <class T>
struct GemmFactor {
  const T* data;
  int64_t stride;
  Transpose transpose = Transpose::no;  // yes: stored as (K, M) or (N, K)
};

template <class T>
struct GemmArguments {
  int64_t m, n, k;
  GemmFactor<T> a, b;
  T* c;
  int64_t stride_c;
  Write write;
  T alpha;
  T* workspace;  // gemm_workspace<T>(m, n, k) elements, aligned to 64 bytes
};

// Elements of workspace; never more for smaller dimensions. A multiple of 64 bytes.
template <class T>
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k);

// T is float or double. Never allocates.
template <class T>
void gemm(const GemmArguments<T>& arguments);

// Products over k are summed in blocks of this length: long, since C is read and written once per block.
inline constexpr int64_t kDepthBlock = 512;

}  // namespace zl
