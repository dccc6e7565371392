// The kernels of causal attention and their arguments. attention.cu chooses between them.
//
// All compute what FlashAttention-2 does, Dao 2023 (arXiv:2307.08691), algorithms 1 and 2. A block
// loops over the tiles of keys for one tile of queries. Scores exist only in registers and shared
// memory; a running maximum and sum per query give the softmax of its row. Backward computes the
// scores again and turns them into probabilities with log_sum_exp.
//
// The paper adds to dq with atomics. Here a second kernel computes dq, so that every sum has one
// order; backward takes 7 matmuls instead of 5. Tiles begin at multiples of their size, and keys
// beyond a query's diagonal add exactly 0. So the result of a query does not depend on how many
// tokens follow it.
#pragma once

#include <type_traits>

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {

// Rows of D channels, `stride` elements apart. Elements outside read as 0.
template <class T>
struct Matrix {
  T* first;
  int64_t stride, rows;
  int D;
  __device__ Matrix from(int64_t r) const { return {first + r * stride, stride, rows - r, D}; }
  __device__ auto get(int r, int d) const {
    using F = Compute<std::remove_const_t<T>>;
    return r < rows && d < D ? F(first[r * stride + d]) : F(0);
  }
};

// The arguments of a forward or backward pass over all heads. Statistics of queries are (B, H, T).
template <class T>
struct Pass {
  using F = Compute<T>;
  int64_t B, tokens, heads;
  int D;
  const T* qkv;
  T* y;
  F* log_sum_exp;
  const T* dy = nullptr;  // backward only
  T* dqkv = nullptr;
  F* delta = nullptr;  // sum of dy * y

  __device__ F scale() const { return F(1) / sqrt(F(D)); }
  // The matrix of head `bh` of B * heads, in a tensor of `parts` * C channels per token. In qkv the
  // parts are queries, keys and values.
  template <class U>
  __device__ Matrix<U> of_head(U* tensor, int64_t bh, int parts = 1, int part = 0) const {
    const int64_t b = bh / heads, h = bh % heads, C = heads * D;
    return {tensor + (b * tokens * parts + part) * C + h * D, parts * C, tokens, D};
  }
};

// The head and the tile that a block computes. Order 0 is the tile with the most work; the tiles of
// order 0 of all heads come first.
struct TileIndex {
  int64_t head, order;
};
template <class T>
__device__ TileIndex tile_index(const Pass<T>& pass) {
  const int64_t heads = pass.B * pass.heads;
  return {blockIdx.x % heads, blockIdx.x / heads};
}

// The kernels for elements of type T. Each type is compiled in a separate file, so that a GPU loads
// only the kernels of the run's type, which it may have to compile from PTX first.
//
// ReadableKernels run on every GPU, for heads of up to 256 channels, and compute in fp32 (fp64 for
// f64). Read them first. TensorCoreKernels multiply 16-bit elements, or fp32 elements that they
// round to TF32, and add in fp32. They round probabilities and gradients of scores likewise before
// they multiply them.
template <class T>
struct ReadableKernels {
  static void load();  // onto the current GPU, so that no launch has to
  static void forward(CUstream_st* stream, const Pass<T>& pass);
  static void backward(CUstream_st* stream, const Pass<T>& pass);  // needs delta
};
template <class T>
struct TensorCoreKernels {
  // Whether they can take heads of D channels on the current GPU. Rows must begin at multiples of
  // 16 bytes.
  static bool supports(int D);
  static void load();
  static void forward(CUstream_st* stream, const Pass<T>& pass);
  static void backward(CUstream_st* stream, const Pass<T>& pass);
};

}  // namespace zl::ZEROLAB_CUDA
