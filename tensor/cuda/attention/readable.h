// Attention in plain C++ for every element type. The files readable_*.cu instantiate it for one
// type.
#pragma once

#include <limits>

#include "tensor/cuda/attention/readable_tiles.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// y (B, T, C) and log_sum_exp (B, H, T): algorithm 1. A block has kRows queries of one head and
// walks over the tiles of keys, up to the diagonal. For each tile it
// 1. multiplies: p = q k^T, scaled, and -infinity where the key comes after the query;
// 2. finds each row's new maximum, and shrinks the sum and the output so far to it;
// 3. turns p into exp(p - maximum), and adds its rows to the sum and p v to the output.
// At the end it divides the output by the sum. Maximum + log(sum) is what backward needs.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks) forward_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  constexpr F kNone = -std::numeric_limits<F>::infinity();
  __shared__ Tile tile;
  const auto [head, order] = tile_index(pass);
  const int64_t queries = ((pass.tokens - 1) / Tile::kRows - order) * Tile::kRows;
  const Matrix<const T> q = pass.of_head(pass.qkv, head, 3, 0).from(queries);
  const Matrix<const T> k = pass.of_head(pass.qkv, head, 3, 1),
                        v = pass.of_head(pass.qkv, head, 3, 2);
  const F scale = pass.scale();
  F largest[Tile::kMine], sum[Tile::kMine];  // the sum is over this thread's columns
  for (int i = 0; i < Tile::kMine; ++i) largest[i] = kNone, sum[i] = 0;
  typename Tile::Output output = {};
  for (int64_t keys = 0; keys <= queries; keys += Tile::kRows) {
    typename Tile::Scores p = {};
    tile.add_matmul(q, k.from(keys), p);
    for (int i = 0; i < Tile::kMine; ++i) {
      F top = largest[i];
      for (int j = 0; j < Tile::kMine; ++j) {
        p[i][j] = keys + column(j) <= queries + row(i) ? p[i][j] * scale : kNone;
        top = p[i][j] > top ? p[i][j] : top;
      }
      top = warp_max<kSide>(top);
      const F base = top == kNone ? F(0) : top;  // all scores so far may be -infinity
      const F shrink = exp(largest[i] - base);   // the sums are relative to the previous maximum
      largest[i] = top;
      sum[i] *= shrink;
      for (int j = 0; j < Tile::kMine; ++j) sum[i] += p[i][j] = exp(p[i][j] - base);
      for (int c = 0; c < Tile::kColumns; ++c) output[i][c] *= shrink;
    }
    tile.add_weighted(p, v.from(keys), output);
  }
  F inverse[Tile::kMine];
  for (int i = 0; i < Tile::kMine; ++i) {
    const F total = warp_sum<kSide>(sum[i]);
    inverse[i] = F(1) / total;
    if (column(0) == 0 && row(i) < q.rows)
      pass.log_sum_exp[head * pass.tokens + queries + row(i)] = largest[i] + log(total);
  }
  Tile::store(
      output, [&](int i) { return inverse[i]; }, pass.of_head(pass.y, head).from(queries));
}

// What backward has of one query: forward's log_sum_exp, and delta. Beyond the last query both are
// 0, and its row of dy is, so that it adds 0.
template <class F>
struct Statistics {
  F log_sum_exp, delta;
};
template <class T, class F = Compute<T>>
__device__ Statistics<F> statistics(const Pass<T>& pass, int64_t head, int64_t query) {
  if (query >= pass.tokens) return {F(0), F(0)};
  return {pass.log_sum_exp[head * pass.tokens + query], pass.delta[head * pass.tokens + query]};
}

// dq = scale dS K with dS = P * (dP - delta), dP = dy V^T: algorithm 2, its sum over keys. A block
// has kRows queries, as in forward, and P = exp(scale q k^T - log_sum_exp) needs no maximum.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks)
    backward_queries_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  __shared__ Tile tile;
  const auto [head, order] = tile_index(pass);
  const int64_t queries = ((pass.tokens - 1) / Tile::kRows - order) * Tile::kRows;
  const Matrix<const T> q = pass.of_head(pass.qkv, head, 3, 0).from(queries),
                        dy = pass.of_head(pass.dy, head).from(queries);
  const Matrix<const T> k = pass.of_head(pass.qkv, head, 3, 1),
                        v = pass.of_head(pass.qkv, head, 3, 2);
  const F scale = pass.scale();
  typename Tile::Output dq = {};
  for (int64_t keys = 0; keys <= queries; keys += Tile::kRows) {
    typename Tile::Scores p = {}, ds = {};
    tile.add_matmul(q, k.from(keys), p);
    tile.add_matmul(dy, v.from(keys), ds);
    for (int i = 0; i < Tile::kMine; ++i) {
      const auto [log_sum_exp, delta] = statistics(pass, head, queries + row(i));
      for (int j = 0; j < Tile::kMine; ++j) {
        const bool sees = keys + column(j) <= queries + row(i);
        ds[i][j] = sees ? exp(p[i][j] * scale - log_sum_exp) * (ds[i][j] - delta) : F(0);
      }
    }
    tile.add_weighted(ds, k.from(keys), dq);
  }
  Tile::store(
      dq, [=](int) { return scale; }, pass.of_head(pass.dqkv, head, 3, 0).from(queries));
}

// dv = P^T dy and dk = scale dS^T q: algorithm 2, its sums over queries. A block has kRows keys and
// walks over the tiles of queries from the diagonal on. The rows of a tile are keys, its columns
// are queries.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks)
    backward_keys_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  __shared__ Tile tile;
  const auto [head, order] = tile_index(pass);
  const int64_t keys = order * Tile::kRows;
  const Matrix<const T> k = pass.of_head(pass.qkv, head, 3, 1).from(keys),
                        v = pass.of_head(pass.qkv, head, 3, 2).from(keys);
  const Matrix<const T> q = pass.of_head(pass.qkv, head, 3, 0), dy = pass.of_head(pass.dy, head);
  const F scale = pass.scale();
  typename Tile::Output dk = {}, dv = {};
  for (int64_t queries = keys; queries < pass.tokens; queries += Tile::kRows) {
    typename Tile::Scores p = {}, ds = {};
    tile.add_matmul(k, q.from(queries), p);
    for (int j = 0; j < Tile::kMine; ++j) {
      const int64_t query = queries + column(j);
      const F log_sum_exp = statistics(pass, head, query).log_sum_exp;
      for (int i = 0; i < Tile::kMine; ++i)
        p[i][j] = keys + row(i) <= query ? exp(p[i][j] * scale - log_sum_exp) : F(0);
    }
    tile.add_weighted(p, dy.from(queries), dv);
    tile.add_matmul(v, dy.from(queries), ds);
    for (int j = 0; j < Tile::kMine; ++j) {
      const F delta = statistics(pass, head, queries + column(j)).delta;
      for (int i = 0; i < Tile::kMine; ++i) ds[i][j] = p[i][j] * (ds[i][j] - delta);
    }
    tile.add_weighted(ds, q.from(queries), dk);
  }
  Tile::store(
      dk, [=](int) { return scale; }, pass.of_head(pass.dqkv, head, 3, 1).from(keys));
  Tile::store(
      dv, [](int) { return F(1); }, pass.of_head(pass.dqkv, head, 3, 2).from(keys));
}

// Calls f with the smallest head size of a kernel that D fits in.
template <class F>
void for_head_size(int64_t D, F&& f) {
  require(D <= 256, "attention: heads of ", D, " channels; the limit on a GPU is 256");
  if (D <= 64) return f(std::integral_constant<int, 64>());
  if (D <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, 256>());
}

}  // namespace

template <class T>
void ReadableKernels<T>::load() {
  for (const int64_t D : {64, 128, 256}) {
    for_head_size(D, [&](auto head) {
      constexpr int kHead = decltype(head)::value;
      load_kernel(forward_kernel<T, kHead>);
      load_kernel(backward_queries_kernel<T, kHead>);
      load_kernel(backward_keys_kernel<T, kHead>);
    });
  }
}

template <class T>
void ReadableKernels<T>::forward(CUstream_st* stream, const Pass<T>& pass) {
  for_head_size(pass.D, [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    const int64_t tiles = blocks_for(pass.tokens, Tiles<T, kHead>::kRows);
    launch_on(stream, forward_kernel<T, kHead>, pass.B * pass.heads * tiles, kThreads, pass);
  });
}

template <class T>
void ReadableKernels<T>::backward(CUstream_st* stream, const Pass<T>& pass) {
  for_head_size(pass.D, [&](auto head) {
    constexpr int kHead = decltype(head)::value;
    const int64_t blocks = pass.B * pass.heads * blocks_for(pass.tokens, Tiles<T, kHead>::kRows);
    launch_on(stream, backward_queries_kernel<T, kHead>, blocks, kThreads, pass);
    launch_on(stream, backward_keys_kernel<T, kHead>, blocks, kThreads, pass);
  });
}

}  // namespace zl::ZEROLAB_CUDA
