// Causal attention as FlashAttention-2, Dao 2023 (arXiv:2307.08691), algorithms 1 and 2. A block
// loops over the tiles of keys for one tile of queries. Scores exist only in registers and shared
// memory; a running maximum and sum per query give the softmax of its row. Backward computes the
// scores again and turns them into probabilities with log_sum_exp.
//
// The paper adds to dq with atomics. Here a second kernel computes dq, so that every sum has one
// order; backward takes 7 matmuls instead of 5. Tiles begin at multiples of their size, and keys
// beyond a query's diagonal add exactly 0. So the result of a query does not depend on how many
// tokens follow it.
#include <limits>

#include "tensor/cuda/attention_tiles.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// The head and the tile that a block computes. Tiles with more work come first, of all heads.
struct Job {
  int64_t head, rank;
};
template <class T>
__device__ Job job(const Pass<T>& pass) {
  const int64_t heads = pass.B * pass.heads;
  return {blockIdx.x % heads, blockIdx.x / heads};
}

template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks) forward_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  constexpr F kNone = -std::numeric_limits<F>::infinity();
  __shared__ Tile tile;
  const auto [head, rank] = job(pass);
  const int64_t queries = ((pass.tokens - 1) / Tile::kRows - rank) * Tile::kRows;
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

// delta = the sum of dy * y of each query. One warp per query.
template <class T>
__global__ void delta_kernel(Pass<T> pass) {
  using F = Compute<T>;
  const int64_t query = first_element() / kWarp, head = query / pass.tokens;
  if (head >= pass.B * pass.heads) return;  // all threads of the warp
  const Matrix<const T> y =
      pass.of_head(static_cast<const T*>(pass.y), head).from(query % pass.tokens);
  const Matrix<const T> dy = pass.of_head(pass.dy, head).from(query % pass.tokens);
  F sum = 0;
  for (int d = int(threadIdx.x) % kWarp; d < pass.D; d += kWarp) sum += dy.get(0, d) * y.get(0, d);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) pass.delta[query] = sum;
}

// The statistics of one query.
template <class F>
struct Statistics {
  F log_sum_exp, delta;
};
template <class T, class F = Compute<T>>
__device__ Statistics<F> statistics(const Pass<T>& pass, int64_t head, int64_t query) {
  if (query >= pass.tokens) return {F(0), F(0)};
  return {pass.log_sum_exp[head * pass.tokens + query], pass.delta[head * pass.tokens + query]};
}

// dq = scale dS K with dS = P * (dP - delta), dP = dy V^T.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks)
    backward_queries_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  __shared__ Tile tile;
  const auto [head, rank] = job(pass);
  const int64_t queries = ((pass.tokens - 1) / Tile::kRows - rank) * Tile::kRows;
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

// dv = P^T dy and dk = scale dS^T q. The rows of a tile are keys, its columns are queries.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads, Tiles<T, kHead>::kBlocks)
    backward_keys_kernel(Pass<T> pass) {
  using Tile = Tiles<T, kHead>;
  using F = Compute<T>;
  __shared__ Tile tile;
  const auto [head, rank] = job(pass);
  const int64_t keys = rank * Tile::kRows;
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

template <class T>
Pass<T> pass_over(const AttentionSaved& saved) {
  const int64_t B = saved.qkv.dim(0), tokens = saved.qkv.dim(1),
                D = saved.qkv.dim(2) / 3 / saved.heads;
  return {B,
          tokens,
          saved.heads,
          int(D),
          elements<T>(saved.qkv),
          elements<T>(saved.y),
          elements<Compute<T>>(saved.log_sum_exp)};
}

}  // namespace

void CudaBackend::attention(const AttentionSaved& saved, const Tensor&) {
  if (saved.qkv.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class T>(T) {
    const Pass<T> pass = pass_over<T>(saved);
    for_head_size(pass.D, [&](auto head) {
      constexpr int kHead = decltype(head)::value;
      const int64_t tiles = blocks_for(pass.tokens, Tiles<T, kHead>::kRows);
      launch(*this, forward_kernel<T, kHead>, pass.B * pass.heads * tiles, kThreads, pass);
    });
  });
}

void CudaBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy,
                                     const Tensor& dqkv, const Tensor& workspace) {
  if (saved.qkv.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class T>(T) {
    Pass<T> pass = pass_over<T>(saved);
    pass.dy = elements<T>(dy);
    pass.dqkv = elements<T>(dqkv);
    pass.delta = elements<Compute<T>>(workspace);
    const int64_t heads = pass.B * pass.heads;
    launch(*this, delta_kernel<T>, blocks_for(heads * pass.tokens * kWarp), kThreads, pass);
    for_head_size(pass.D, [&](auto head) {
      constexpr int kHead = decltype(head)::value;
      const int64_t tiles = blocks_for(pass.tokens, Tiles<T, kHead>::kRows);
      launch(*this, backward_queries_kernel<T, kHead>, heads * tiles, kThreads, pass);
      launch(*this, backward_keys_kernel<T, kHead>, heads * tiles, kThreads, pass);
    });
  });
}

}  // namespace zl::ZEROLAB_CUDA
