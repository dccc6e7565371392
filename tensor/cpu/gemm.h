// The GEMM of the CPU kernels, row-major: C (M, N) = or += alpha * A (M, K) * B (K, N).
//
// Each kDepthBlock terms of an element are one chain of multiply-adds from 0, fused where the
// machine can; the blocks are then added to C in order. So the bits of an element depend on its row
// of A, its column of B, alpha and the initial value of C. They do not depend on M or N, on the
// position of the element, on alignment, or, among machines that fuse, on the width of their
// vectors.
//
// All sizes and strides are [n] elements. C must not overlap A, B or the bias. These functions
// check nothing and throw nothing.
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
  T* workspace;  // gemm_workspace(m, n, k) elements, aligned to 64 bytes; may be null if that is 0
  const T* bias = nullptr;  // (N), added to every row if write is Write::set, else ignored
};

// [n] A multiple of 64 bytes, not decreasing in m, n and k, equal for all instruction sets.
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k);

// T is float or double. Never allocates. A sum over no k is 0.
template <class T>
void gemm(const GemmArguments<T>& arguments);

// Packs a right factor (K, N) into the order in which gemm reads it, once for any number of GEMMs.
// to: packed_elements(k, n) elements, aligned to 64 bytes.
template <class T>
void pack(const GemmFactor<T>& b, int64_t k, int64_t n, T* to);
int64_t packed_elements(int64_t k, int64_t n);

// A GEMM with the first k rows and n columns of a packed factor that has `rows` rows.
template <class T>
struct PackedGemmArguments {
  int64_t m, n, k;
  GemmFactor<T> a;
  const T* b;    // what pack wrote
  int64_t rows;  // the k of pack()
  T* c;
  int64_t stride_c;
  Write write;
  T alpha;
  T* workspace;  // copied_rows_elements(m, k), aligned to 64 bytes
  const T* bias = nullptr;
};

int64_t copied_rows_elements(int64_t m, int64_t k);  // for rows of A that are not read in place
template <class T>
void gemm_packed(const PackedGemmArguments<T>& arguments);

// [n] The length of a block of k: long, because C is read and written once per block.
inline constexpr int64_t kDepthBlock = 512;

}  // namespace zl
