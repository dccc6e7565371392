// Attention on tensor cores: the algorithm of readable.h with fragments instead of tiles in
// registers. The files tensor_cores_*.cu instantiate it for one type.
#pragma once

#include "tensor/cuda/attention/tensor_core_tiles.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// The scores become -infinity where `sees(row, column)` is false; columns begin at `first`.
template <class Sees>
__device__ void mask(Scores16& scores, int first, Sees sees) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = first + half * 8 + fragment_column(i);
      if (!sees(fragment_row(i), column)) scores[half][i] = kNone;
    }
  }
}

// The softmax of two rows of the warp, g and g + 8, over the keys so far.
struct Softmax {
  float largest[2] = {kNone, kNone}, sum[2] = {0, 0};  // the sum is over this thread's columns

  // Turns scores into weights relative to the largest so far, and rescales sum and output to the
  // new maximum.
  template <int kSteps, int kSums>
  __device__ void add(float scale, Scores16 (&scores)[kSteps], float (&output)[kSums][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest[r];
#pragma unroll
      for (int n = 0; n < kSteps * 4; ++n)
        top = fmaxf(top, scores[n / 4][n / 2 % 2][2 * r + n % 2]);
      top = warp_max<4>(top);
      const float base = top == kNone ? 0.f : top * scale;  // all scores so far may be -infinity
      // Exactly 1 if the maximum is the same: the compiler may fuse product and difference, whose
      // rounding would change what earlier keys gave.
      const float shrink = largest[r] == top ? 1.f : exp2_approximately((largest[r] - top) * scale);
      largest[r] = top;
      sum[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kSteps * 4; ++n) {
        float& score = scores[n / 4][n / 2 % 2][2 * r + n % 2];
        sum[r] += score = exp2_approximately(score * scale - base);
      }
#pragma unroll
      for (int c = 0; c < kSums; ++c) output[c][2 * r] *= shrink, output[c][2 * r + 1] *= shrink;
    }
  }
};

// The steps of readable.h's forward_kernel. What differs:
// * A warp, not a block, has rows of its own: 16 queries, whose fragments stay in registers.
// * Tiles of K and V have two buffers: one is filled by asynchronous copies while the warps use the
//   other.
// * Exponentials are powers of 2: the scale has the factor log2(e).
// * Only tiles that the diagonal crosses are masked.
template <class T, int kHead>
__device__ void forward(const Pass<T>& pass) {
  using Tiles = TilePair<T, kHead>;
  constexpr int kSteps = Tiles::kRows / 16;
  __shared__ Tiles shared;
  const auto [head, order] = tile_index(pass);
  const int tokens = int(pass.tokens),
            queries = ((tokens - 1) / kBlockRows - int(order)) * kBlockRows;
  const Matrix<const T> k = pass.of_head(pass.qkv, head, 3, 1),
                        v = pass.of_head(pass.qkv, head, 3, 2);
  const WarpRows<T, kHead> q(pass.of_head(pass.qkv, head, 3, 0).from(queries));
  const float scale = pass.scale();
  Softmax softmax;
  Sums<kHead> output = {};
  const auto start = [&](int buffer, int keys) {
    Tiles::start_copies(k.from(keys), shared.tiles[buffer][0]);
    Tiles::start_copies(v.from(keys), shared.tiles[buffer][1]);
  };
  const int end = queries + kBlockRows < tokens ? queries + kBlockRows : tokens;
  shared.for_tiles(0, end, start, [&](int buffer, int keys) {
    Scores16 p[kSteps] = {};
#pragma unroll
    for (int n = 0; n < kSteps; ++n) Tiles::add_scores(q, shared.tiles[buffer][0], 16 * n, p[n]);
    const int ahead = keys - queries - first_row_of_warp();  // of the first key, of the first query
    if (ahead + Tiles::kRows > 1) {
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
        mask(p[n], ahead + 16 * n, [](int query, int key) { return key <= query; });
    }
    softmax.add(scale * kLog2E, p, output);
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
      Tiles::add_weighted(p[n], shared.tiles[buffer][1], 16 * n, output);
  });
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = warp_sum<4>(softmax.sum[r]);
    inverse[r] = 1 / total;
    const int query = queries + first_row_of_warp() + fragment_row(2 * r);
    if (lane() % 4 == 0 && query < tokens)
      pass.log_sum_exp[head * pass.tokens + query] = softmax.largest[r] * scale + logf(total);
  }
  Tiles::store(output, inverse[0], inverse[1], pass.of_head(pass.y, head).from(queries));
}

// dq = scale dS K with dS = P * (dP - delta), dP = dy V^T: readable.h's backward_queries_kernel. P
// and dS exist for 16 keys at a time, so that they fit into registers beside dq.
template <class T, int kHead>
__device__ void backward_queries(const Pass<T>& pass) {
  using Tiles = TilePair<T, kHead>;
  __shared__ Tiles shared;
  const auto [head, order] = tile_index(pass);
  const int tokens = int(pass.tokens),
            queries = ((tokens - 1) / kBlockRows - int(order)) * kBlockRows;
  const Matrix<const T> k = pass.of_head(pass.qkv, head, 3, 1),
                        v = pass.of_head(pass.qkv, head, 3, 2);
  const WarpRows<T, kHead> q(pass.of_head(pass.qkv, head, 3, 0).from(queries)),
      dy(pass.of_head(pass.dy, head).from(queries));
  const float scale = pass.scale();
  float log2_sum[2] = {0, 0}, delta[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = queries + first_row_of_warp() + fragment_row(2 * r);
    if (query >= tokens) continue;
    log2_sum[r] = pass.log_sum_exp[head * pass.tokens + query] * kLog2E;
    delta[r] = pass.delta[head * pass.tokens + query];
  }
  Sums<kHead> dq = {};
  const auto start = [&](int buffer, int keys) {
    Tiles::start_copies(k.from(keys), shared.tiles[buffer][0]);
    Tiles::start_copies(v.from(keys), shared.tiles[buffer][1]);
  };
  const int end = queries + kBlockRows < tokens ? queries + kBlockRows : tokens;
  shared.for_tiles(0, end, start, [&](int buffer, int keys) {
    const int ahead = keys - queries - first_row_of_warp();
#pragma unroll
    for (int n = 0; n < Tiles::kRows / 16; ++n) {
      Scores16 p = {}, ds = {};
      Tiles::add_scores(q, shared.tiles[buffer][0], 16 * n, p);
      Tiles::add_scores(dy, shared.tiles[buffer][1], 16 * n, ds);
      if (ahead + 16 * n + 16 > 1)
        mask(p, ahead + 16 * n, [](int query, int key) { return key <= query; });
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = i / 2 % 2;
        float& ds_i = ds[i / 4][i % 4];
        ds_i = exp2_approximately(p[i / 4][i % 4] * (scale * kLog2E) - log2_sum[r]) *
               (ds_i - delta[r]);
      }
      Tiles::add_weighted(ds, shared.tiles[buffer][0], 16 * n, dq);
    }
  });
  Tiles::store(dq, scale, scale, pass.of_head(pass.dqkv, head, 3, 0).from(queries));
}

// dv = P^T dy and dk = scale dS^T q: readable.h's backward_keys_kernel. The rows of a fragment are
// keys, its columns are queries. The statistics of a tile's queries travel with it, as each thread
// needs those of many columns.
template <class T, int kHead>
__device__ void backward_keys(const Pass<T>& pass) {
  using Tiles = TilePair<T, kHead>;
  __shared__ Tiles shared;
  __shared__ float statistics[2][2][Tiles::kRows];  // [buffer][log_sum_exp or delta]
  const auto [head, order] = tile_index(pass);
  const int tokens = int(pass.tokens), keys = int(order) * kBlockRows;
  const Matrix<const T> q = pass.of_head(pass.qkv, head, 3, 0), dy = pass.of_head(pass.dy, head);
  const WarpRows<T, kHead> k(pass.of_head(pass.qkv, head, 3, 1).from(keys)),
      v(pass.of_head(pass.qkv, head, 3, 2).from(keys));
  const float scale = pass.scale();
  Sums<kHead> dk = {}, dv = {};
  const int which = int(threadIdx.x) / Tiles::kRows, query = int(threadIdx.x) % Tiles::kRows;
  const float* of_head = (which == 0 ? pass.log_sum_exp : pass.delta) + head * pass.tokens;
  const auto start = [&](int buffer, int queries) {
    Tiles::start_copies(q.from(queries), shared.tiles[buffer][0]);
    Tiles::start_copies(dy.from(queries), shared.tiles[buffer][1]);
    if (which > 1) return;
    const bool exists = queries + query < tokens;
    start_copy<4>(&statistics[buffer][which][query], of_head + (exists ? queries + query : 0),
                  exists);
  };
  shared.for_tiles(keys, tokens, start, [&](int buffer, int queries) {
    const int behind = queries - keys - first_row_of_warp();
#pragma unroll
    for (int n = 0; n < Tiles::kRows / 16; ++n) {
      Scores16 p = {}, ds = {};
      Tiles::add_scores(k, shared.tiles[buffer][0], 16 * n, p);
      Tiles::add_scores(v, shared.tiles[buffer][1], 16 * n, ds);
      if (behind + 16 * n < 16 - 1)
        mask(p, behind + 16 * n, [](int key, int query) { return key <= query; });
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column = 16 * n + i / 4 * 8 + fragment_column(i);
        float &p_i = p[i / 4][i % 4], &ds_i = ds[i / 4][i % 4];
        p_i = exp2_approximately(p_i * (scale * kLog2E) - statistics[buffer][0][column] * kLog2E);
        ds_i = p_i * (ds_i - statistics[buffer][1][column]);
      }
      Tiles::add_weighted(p, shared.tiles[buffer][1], 16 * n, dv);
      Tiles::add_weighted(ds, shared.tiles[buffer][0], 16 * n, dk);
    }
  });
  Tiles::store(dk, scale, scale, pass.of_head(pass.dqkv, head, 3, 1).from(keys));
  Tiles::store(dv, 1, 1, pass.of_head(pass.dqkv, head, 3, 2).from(keys));
}

// Blocks that run on one multiprocessor at a time: registers are limited to 65536 / 128 / kBlocks.
template <int kHead>
constexpr int kBlocks = kHead > 64 ? 2 : 3;

template <class T, int kHead>
__global__ void __launch_bounds__(kBlockThreads, kBlocks<kHead>) forward_kernel(Pass<T> pass) {
  if constexpr (kTensorCores)
    forward<T, kHead>(pass);
  else
    trap();
}
template <class T, int kHead>
__global__ void __launch_bounds__(kBlockThreads, kBlocks<kHead>)
    backward_queries_kernel(Pass<T> pass) {
  if constexpr (kTensorCores)
    backward_queries<T, kHead>(pass);
  else
    trap();
}
template <class T, int kHead>
__global__ void __launch_bounds__(kBlockThreads, 2) backward_keys_kernel(Pass<T> pass) {
  if constexpr (kTensorCores)
    backward_keys<T, kHead>(pass);
  else
    trap();
}

// Calls f with the head size of the kernels that D fits in.
template <class T, class F>
void for_head_size(int D, F&& f) {
  if constexpr (sizeof(T) == 2)
    if (D > 64) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, 64>());
}

}  // namespace

template <class T>
bool TensorCoreKernels<T>::supports(int D) {
  if (D > (sizeof(T) == 2 ? 128 : 64) || D % 8 != 0) return false;
  return compiled_for(forward_kernel<T, 64>) >= 80;  // as all kernels: they are compiled alike
}

template <class T>
void TensorCoreKernels<T>::load() {
  for (const int D : {64, 128}) {
    for_head_size<T>(D, [](auto head) {
      constexpr int kHead = decltype(head)::value;
      load_kernel(forward_kernel<T, kHead>);
      load_kernel(backward_queries_kernel<T, kHead>);
      load_kernel(backward_keys_kernel<T, kHead>);
    });
  }
}

template <class T>
void TensorCoreKernels<T>::forward(CUstream_st* stream, const Pass<T>& pass) {
  for_head_size<T>(pass.D, [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    const int64_t blocks = pass.B * pass.heads * blocks_for(pass.tokens, kBlockRows);
    launch_on(stream, forward_kernel<T, kHead>, blocks, kBlockThreads, pass);
  });
}

template <class T>
void TensorCoreKernels<T>::backward(CUstream_st* stream, const Pass<T>& pass) {
  for_head_size<T>(pass.D, [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    const int64_t blocks = pass.B * pass.heads * blocks_for(pass.tokens, kBlockRows);
    launch_on(stream, backward_queries_kernel<T, kHead>, blocks, kBlockThreads, pass);
    launch_on(stream, backward_keys_kernel<T, kHead>, blocks, kBlockThreads, pass);
  });
}

}  // namespace zl::ZEROLAB_CUDA
