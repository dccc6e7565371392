// Causal attention; threads share the heads. Each tile of queries is multiplied with the keys up to
// the end of the tile. So the masked half of the scores is not stored, and little of it is
// computed: some scores right beyond the diagonal.
//
// A row of weights is exactly 0 beyond its diagonal, and every matmul accumulates over the keys in
// their order. So the result of a query does not depend on its tile, nor on how many tokens follow
// it, as long as those are finite (except the sign of a zero).
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

constexpr int64_t kTile = 32;  // [n] queries: few, so that little is computed above the diagonal

static_assert(kLanes * sizeof(float) % 64 == 0,
              "packed matrices must begin at multiples of 64 bytes");

// One head in the compute type. Matrices are (T, D), with a stride [n] from row to row.
template <class F>
struct Head {
  int64_t T, D;
  int64_t stride;  // of q, k, v and their gradients
  const F *q, *k, *v;
  int64_t stride_y;       // of y and dy
  F *y, *log_sum_exp;     // log_sum_exp: (T)
  const F* dy = nullptr;  // backward only, as are the gradients
  F *dq = nullptr, *dk = nullptr, *dv = nullptr;
  F scale() const { return F(1) / std::sqrt(F(D)); }
};

// Divides the workspace into aligned arrays. With next = null it only counts their elements.
template <class F>
struct Arena {
  F* next;
  int64_t used = 0;  // [n]
  F* take(int64_t elements) {
    const int64_t n = round_up(elements, kLanes);
    used += n;
    return next ? std::exchange(next, next + n) : nullptr;
  }
};

// Scratch of one head. Keys and values are packed once for all tiles. `scores` and `gradients` have
// one row per query of a tile, `stride` elements apart: kLanes more than needed, so that rows do
// not share cache sets if T is a power of two.
template <class F>
struct Scratch {
  F* keys_transposed;                               // (D, T)
  F* values = nullptr;                              // (T, D): forward only
  F *keys = nullptr, *values_transposed = nullptr;  // (T, D), (D, T): backward only
  F *queries = nullptr, *dy = nullptr;              // (R, D) of a tile: backward only
  F* gradients = nullptr;                           // of the scores: backward only
  int64_t stride;
  F* scores;  // become the weights
  F* gemm;    // workspace of gemm_packed

  Scratch(Arena<F>& arena, int64_t T, int64_t D, bool backward)
      : keys_transposed(arena.take(packed_elements(D, T))), stride(round_up(T, kLanes) + kLanes) {
    const int64_t R = std::min(T, kTile);
    if (backward) {
      values_transposed = arena.take(packed_elements(D, T));
      keys = arena.take(packed_elements(T, D));
      queries = arena.take(packed_elements(R, D));
      dy = arena.take(packed_elements(R, D));
      gradients = arena.take(R * stride);
    } else {
      values = arena.take(packed_elements(T, D));
    }
    scores = arena.take(R * stride);
    gemm = arena.take(std::max(
        {packed_rows_elements(R, D), packed_rows_elements(R, T), packed_rows_elements(T, R)}));
  }
};

// Masks the keys beyond the diagonal: exp of their score becomes 0. Fills up to a multiple of
// kLanes, so that the row consists of full vectors, and returns that length.
template <class F>
int64_t mask(F* row, int64_t length) {
  const int64_t padded = round_up(length, kLanes);
  std::fill(row + length, row + padded, -std::numeric_limits<F>::infinity());
  return padded;
}

template <class F>
void forward(const Head<F>& h, const Scratch<F>& s) {
  pack<F>({h.k, h.stride, Transpose::yes}, h.D, h.T, s.keys_transposed);
  pack<F>({h.v, h.stride}, h.T, h.D, s.values);
  for (int64_t begin = 0; begin < h.T; begin += kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const GemmFactor<F> q{h.q + begin * h.stride, h.stride}, p{s.scores, s.stride};
    gemm_packed<F>({R, n, h.D, q, s.keys_transposed, h.D, s.scores, s.stride, Write::set, h.scale(),
                    s.gemm, Triangle::c, begin});
    F sums[kTile];
    for (int64_t r = 0; r < R; ++r) {
      F* row = s.scores + r * s.stride;
      const int64_t padded = mask(row, begin + r + 1);
      const F largest = max_lanes(padded, row[0], [&](int64_t j) { return row[j]; });
      // The lambda also stores the weights: it is called once for each.
      sums[r] = sum_lanes(padded, [&](int64_t j) { return row[j] = exp_fast(row[j] - largest); });
      std::fill(row + std::min(padded, n), row + n, F(0));
      h.log_sum_exp[begin + r] = largest + std::log(sums[r]);
    }
    F* y = h.y + begin * h.stride_y;
    gemm_packed<F>(
        {R, h.D, n, p, s.values, h.T, y, h.stride_y, Write::set, F(1), s.gemm, Triangle::a, begin});
    // Normalising D values takes less work than normalising n weights.
    for (int64_t r = 0; r < R; ++r, y += h.stride_y) {
      const F inverse = F(1) / sums[r];
#pragma omp simd
      for (int64_t d = 0; d < h.D; ++d) y[d] *= inverse;
    }
  }
}

// Probabilities P from scores, and dS = P * (dP - sum(dy * y)), both exactly 0 beyond the diagonal.
template <class F>
void backward_row(const Head<F>& h, int64_t query, int64_t n, F* p, F* ds) {
  const F *y = h.y + query * h.stride_y, *dy = h.dy + query * h.stride_y;
  const F delta = sum_lanes(h.D, [&](int64_t d) { return dy[d] * y[d]; });
  const F log_sum_exp = h.log_sum_exp[query];
  const int64_t length = query + 1, padded = mask(p, length);
  std::fill(ds + length, ds + padded, F(0));
#pragma omp simd
  for (int64_t j = 0; j < padded; ++j) {
    p[j] = exp_fast(p[j] - log_sum_exp);
    ds[j] = p[j] * (ds[j] - delta);
  }
  if (padded >= n) return;
  std::fill(p + padded, p + n, F(0));
  std::fill(ds + padded, ds + n, F(0));
}

template <class F>
void backward(const Head<F>& h, const Scratch<F>& s) {
  pack<F>({h.k, h.stride, Transpose::yes}, h.D, h.T, s.keys_transposed);
  pack<F>({h.v, h.stride, Transpose::yes}, h.D, h.T, s.values_transposed);
  pack<F>({h.k, h.stride}, h.T, h.D, s.keys);
  // The last tile is first: it covers all keys, so it sets dk and dv, and the others add to them.
  const int64_t last = (h.T - 1) / kTile * kTile;
  for (int64_t begin = last; begin >= 0; begin -= kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const Write write = begin == last ? Write::set : Write::add;
    const GemmFactor<F> q{h.q + begin * h.stride, h.stride},
        dy{h.dy + begin * h.stride_y, h.stride_y};
    gemm_packed<F>({R, n, h.D, q, s.keys_transposed, h.D, s.scores, s.stride, Write::set, h.scale(),
                    s.gemm, Triangle::c, begin});
    gemm_packed<F>({R, n, h.D, dy, s.values_transposed, h.D, s.gradients, s.stride, Write::set,
                    F(1), s.gemm, Triangle::c, begin});
    for (int64_t r = 0; r < R; ++r)
      backward_row(h, begin + r, n, s.scores + r * s.stride, s.gradients + r * s.stride);
    const GemmFactor<F> ds{s.gradients, s.stride};
    const GemmFactor<F> ds_transposed{s.gradients, s.stride, Transpose::yes};
    const GemmFactor<F> p_transposed{s.scores, s.stride, Transpose::yes};
    pack(q, R, h.D, s.queries);
    pack(dy, R, h.D, s.dy);
    gemm_packed<F>({R, h.D, n, ds, s.keys, h.T, h.dq + begin * h.stride, h.stride, Write::set,
                    h.scale(), s.gemm, Triangle::a, begin});
    gemm_packed<F>(
        {n, h.D, R, ds_transposed, s.queries, R, h.dk, h.stride, write, h.scale(), s.gemm});
    gemm_packed<F>({n, h.D, R, p_transposed, s.dy, R, h.dv, h.stride, write, F(1), s.gemm});
  }
}

// One head in the tensors. `y` and `dy` have C channels per token, `qkv` and `dqkv` 3C.
template <class S>
struct HeadOfTensors {
  using F = Compute<S>;
  int64_t T, C, D;
  const S* q;
  S* y;
  F* log_sum_exp;
  const S* dy = nullptr;  // backward only
  S* dq = nullptr;

  Head<F> in_place() const {
    Head<F> h{T, D, 3 * C, q, q + C, q + 2 * C, C, y, log_sum_exp};
    if (dy) h.dy = dy, h.dq = dq, h.dk = dq + C, h.dv = dq + 2 * C;
    return h;
  }

  // For bf16 and f16, which are computed in fp32: converted inputs and room for the outputs.
  Head<F> converted(Arena<F>& arena) const {
    const auto copy = [&](const S* from, int64_t stride) {
      F* const to = arena.take(T * D);
      convert(from, stride, to, D, T, D);
      return to;
    };
    Head<F> h{.T = T, .D = D, .stride = D, .stride_y = D, .log_sum_exp = log_sum_exp};
    h.q = copy(q, 3 * C), h.k = copy(q + C, 3 * C), h.v = copy(q + 2 * C, 3 * C);
    h.y = dy ? copy(y, C) : arena.take(T * D);
    if (!dy) return h;
    h.dy = copy(dy, C);
    h.dq = arena.take(T * D), h.dk = arena.take(T * D), h.dv = arena.take(T * D);
    return h;
  }

  void run(F* workspace) const {
    Arena<F> arena{workspace};
    if constexpr (std::is_same_v<S, F>) {
      compute(in_place(), arena);
    } else {
      const Head<F> h = converted(arena);
      compute(h, arena);
      if (!dy) return convert(h.y, D, y, C, T, D);
      convert(h.dq, D, dq, 3 * C, T, D);
      convert(h.dk, D, dq + C, 3 * C, T, D);
      convert(h.dv, D, dq + 2 * C, 3 * C, T, D);
    }
  }

 private:
  static void compute(const Head<F>& h, Arena<F>& arena) {
    const Scratch<F> scratch(arena, h.T, h.D, h.dy != nullptr);
    if (h.dy)
      backward(h, scratch);
    else
      forward(h, scratch);
  }
};

// [B] A multiple of 64.
int64_t workspace_of_head(int64_t T, int64_t D, Dtype dtype, bool backward) {
  int64_t bytes = 0;
  for_float_type(dtype, [&]<class S>(S) {
    using F = Compute<S>;
    Arena<F> arena{nullptr};
    // q, k, v and y; in backward dy, dq, dk and dv, too: HeadOfTensors::converted.
    for (int i = 0; !std::is_same_v<S, F> && i < (backward ? 8 : 4); ++i) arena.take(T * D);
    Scratch<F>(arena, T, D, backward);
    bytes = int64_t(sizeof(F)) * arena.used;
  });
  return bytes;
}

// dy and dqkv are undefined in a forward pass.
void for_each_head(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                   const Tensor& workspace) {
  const int64_t B = saved.qkv.dim(0), T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3,
                H = saved.heads, D = C / H;
  if (B * T * D == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class S>(S) {
    using F = Compute<S>;
    const S* const qkv = saved.qkv.data<S>().data();
    S* const y = saved.y.data<S>().data();
    F* const log_sum_exp = saved.log_sum_exp.data<F>().data();
    const int64_t bytes = workspace_of_head(T, D, saved.qkv.dtype(), dy.defined());
    in_parallel(B * H, grain_of(T * T), [&](int64_t part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = i / H * T, channel = i % H * D, at = token * C + channel,
                      at_qkv = token * 3 * C + channel;
        HeadOfTensors<S> head{T, C, D, qkv + at_qkv, y + at, log_sum_exp + i * T};
        if (dy.defined()) {
          head.dy = dy.data<S>().data() + at;
          head.dq = dqkv.data<S>().data() + at_qkv;
        }
        head.run(reinterpret_cast<F*>(static_cast<char*>(workspace.address()) + part * bytes));
      }
    });
  });
}

}  // namespace

int64_t attention_workspace(std::span<const int64_t> dims, Dtype dtype, bool backward) {
  const int64_t heads = dims[0] * dims[2], T = dims[1], D = dims[3];
  if (heads * T * D == 0) return 0;
  return parallel_parts(heads, grain_of(T * T)) * workspace_of_head(T, D, dtype, backward);
}

void CpuBackend::attention(const AttentionSaved& saved, const Tensor& workspace) {
  for_each_head(saved, {}, {}, workspace);
}

void CpuBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy,
                                    const Tensor& dqkv, const Tensor& workspace) {
  for_each_head(saved, dy, dqkv, workspace);
}

}  // namespace zl
