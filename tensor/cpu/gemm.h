// The GEMM of the CPU kernels, row-major: C (M, N) = or += alpha * A (M, K) * B (K, N).
//
// Each kDepthBlock terms of an element are one chain of multiply-adds from 0, fused where the
// machine can; the blocks are then added to C in order. So the bits of an element depend on its row
// of A, its column of B, alpha and the initial value of C. They do not depend on M or N, on the
// position of the element, on alignment, on the number of threads, or, among machines that fuse, on
// the width of their vectors.
//
// All sizes and strides are [n] elements. C must not overlap A, B or the bias. These functions
// check nothing.
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

// [n] The workspace of gemm() on compute_threads() threads. A multiple of 64 bytes, not decreasing
// in m, n and k, equal for all instruction sets.
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k);

// T is float or double. Runs on compute_threads(), and throws what run_parts throws. A sum over no
// k is 0.
template <class T>
void gemm(const GemmArguments<T>& arguments);

// Packs a right factor (K, N) into the order in which gemm reads it, once for any number of GEMMs.
// to: packed_elements(k, n) elements, aligned to 64 bytes.
template <class T>
void pack(const GemmFactor<T>& b, int64_t k, int64_t n, T* to);
int64_t packed_elements(int64_t k, int64_t n);

// A matrix in which only columns 0 to diagonal + r of row r are needed (c), or may be nonzero (a).
enum class Triangle { none, c, a };

// A GEMM, on the caller's thread, with the first k rows and n columns of a packed factor that has
// packed_k rows.
template <class T>
struct PackedGemmArguments {
  int64_t m, n, k;
  GemmFactor<T> a;
  const T* b;        // what pack wrote
  int64_t packed_k;  // the k of pack()
  T* c;
  int64_t stride_c;
  Write write;
  T alpha;
  T* workspace;  // packed_rows_elements(m, k), aligned to 64 bytes
  // Which matrix is a triangle. c: elements beyond it may be left as they are; a: they are zeros,
  // which are skipped. If B is finite, neither changes a bit, except the sign of a zero.
  Triangle triangle = Triangle::none;
  int64_t diagonal = 0;
};

int64_t packed_rows_elements(int64_t m, int64_t k);  // for rows of A that tiles cannot read fast
template <class T>
void gemm_packed(const PackedGemmArguments<T>& arguments);

// [n] The length of a block of k: long, because C is read and written once per block.
inline constexpr int64_t kDepthBlock = 512;

}  // namespace zl
