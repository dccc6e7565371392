// Matrix products of the CPU kernels, row-major: C (M, N) = or += alpha * A (M, K) * B (K, N).
//
// One element of C is one chain of fused multiply-adds over k, cut into blocks of kDepthBlock. Its bits depend on its
// row of A and its column of B alone: not on M or N, on where the element lies, on the alignment of a buffer, or on how
// wide the machine's vectors are.
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
  T* workspace;             // gemm_workspace<T>(m, n, k) elements, aligned to 64 bytes
  const T* bias = nullptr;  // (N), added to every row where write is set
};

// Elements of workspace; never more for smaller dimensions, the same for every instruction set. A multiple of 64 bytes.
template <class T>
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k);

// T is float or double. Never allocates.
template <class T>
void gemm(const GemmArguments<T>& arguments);

// A right factor (K, N) in the order in which products read it: packed once, it serves any number of them.
template <class T>
int64_t packed_elements(int64_t k, int64_t n);  // a multiple of 64 bytes
template <class T>
void pack(const GemmFactor<T>& b, int64_t k, int64_t n, T* to);  // aligned to 64 bytes

// A product with the first k rows and n columns of a packed factor that has `rows` rows.
template <class T>
struct PackedGemmArguments {
  int64_t m, n, k;
  GemmFactor<T> a;
  const T* b;
  int64_t rows;
  T* c;
  int64_t stride_c;
  Write write;
  T alpha;
  T* workspace;  // packed_rows_elements<T>(m, k), aligned to 64 bytes
  const T* bias = nullptr;
};

template <class T>
int64_t packed_rows_elements(int64_t m, int64_t k);
template <class T>
void gemm_packed(const PackedGemmArguments<T>& arguments);

// Products over k are summed in blocks of this length: long, since C is read and written once per block.
inline constexpr int64_t kDepthBlock = 512;

}  // namespace zl
