// Causal attention, head by head, a tile of queries at a time against the keys up to the end of the
// tile: the masked half of the scores is neither stored nor, apart from the tiles on the diagonal,
// computed.
//
// A row of weights is exactly 0 beyond its diagonal, and every product sums over the keys in their
// order, so the result of a query depends neither on the tile in which it lies nor on how many
// tokens follow it, as long as those are finite.
#include "tensor/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/store.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

constexpr int64_t kTile = 32;  // queries: few, so that little is computed above the diagonal

int64_t aligned(int64_t elements) { return (elements + kLanes - 1) / kLanes * kLanes; }
static_assert(kLanes * sizeof(float) % 64 == 0,
              "what is packed must begin at multiples of 64 bytes");

// One head in the compute type: T rows of D each, `stride` elements apart.
template <class F>
struct Head {
  int64_t T, D;
  int64_t stride;  // of q, k, v and their gradients
  const F *q, *k, *v;
  int64_t stride_y;  // of y and dy
  F* y;
  F* log_sum_exp;  // (T)
  const F* dy = nullptr;
  F *dq = nullptr, *dk = nullptr, *dv = nullptr;
  F scale() const { return F(1) / std::sqrt(F(D)); }
};

// Cuts workspace into aligned pieces; from null it only adds up what they need.
template <class F>
struct Cut {
  F* next;
  int64_t used = 0;
  F* take(int64_t elements) {
    used += aligned(elements);
    return next ? std::exchange(next, next + aligned(elements)) : nullptr;
  }
};

// Scratch of one head. Keys and values are packed once for all tiles. Then rows of scores of one
// tile, which become weights, and of their gradients; kLanes more elements between two rows keep
// them out of each other's cache sets where T is a power of two.
template <class F>
struct Scratch {
  F *keys_across, *values;                      // (D, T), (T, D)
  F *keys = nullptr, *values_across = nullptr;  // (T, D), (D, T): backward
  F *queries = nullptr, *dy = nullptr,
    *gradients = nullptr;  // (R, D), (R, D) and scores' gradients: backward
  int64_t stride;
  F *scores, *rest;

  static Scratch of(Cut<F>& cut, int64_t T, int64_t D, bool backward) {
    const int64_t R = std::min(T, kTile), across = packed_elements(D, T),
                  along = packed_elements(T, D);
    Scratch s;
    s.stride = aligned(T) + kLanes;
    s.keys_across = cut.take(across);
    if (backward) {
      s.values = nullptr, s.values_across = cut.take(across), s.keys = cut.take(along);
      s.queries = cut.take(packed_elements(R, D)), s.dy = cut.take(packed_elements(R, D));
      s.gradients = cut.take(R * s.stride);
    } else {
      s.values = cut.take(along);
    }
    s.scores = cut.take(R * s.stride);
    s.rest = cut.take(std::max(
        {copied_rows_elements(R, D), copied_rows_elements(R, T), copied_rows_elements(T, R)}));
    return s;
  }
};

// Sets what lies beyond the diagonal so that exp gives 0: up to a multiple of kLanes, so that rows
// are whole vectors.
template <class F>
int64_t mask(F* row, int64_t length) {
  const int64_t whole = aligned(length);
  std::fill(row + length, row + whole, -std::numeric_limits<F>::infinity());
  return whole;
}

template <class F>
void forward(const Head<F>& h, const Scratch<F>& s) {
  pack<F>({h.k, h.stride, Transpose::yes}, h.D, h.T, s.keys_across);
  pack<F>({h.v, h.stride}, h.T, h.D, s.values);
  for (int64_t begin = 0; begin < h.T; begin += kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const GemmFactor<F> q{h.q + begin * h.stride, h.stride}, p{s.scores, s.stride};
    gemm_packed<F>(
        {R, n, h.D, q, s.keys_across, h.D, s.scores, s.stride, Write::set, h.scale(), s.rest});
    F sums[kTile];
    for (int64_t r = 0; r < R; ++r) {
      F* row = s.scores + r * s.stride;
      const int64_t whole = mask(row, begin + r + 1);
      const F largest = max_lanes(whole, row[0], [&](int64_t j) { return row[j]; });
      // This also stores the weights: the sum calls it once for each.
      sums[r] = sum_lanes(whole, [&](int64_t j) { return row[j] = exp_fast(row[j] - largest); });
      std::fill(row + std::min(whole, n), row + n, F(0));
      h.log_sum_exp[begin + r] = largest + std::log(sums[r]);
    }
    F* y = h.y + begin * h.stride_y;
    gemm_packed<F>({R, h.D, n, p, s.values, h.T, y, h.stride_y, Write::set, F(1), s.rest});
    for (int64_t r = 0; r < R;
         ++r, y += h.stride_y) {  // dividing D values is less than dividing n weights
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
  const int64_t length = query + 1, whole = mask(p, length);
  std::fill(ds + length, ds + whole, F(0));
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) {
    p[j] = exp_fast(p[j] - log_sum_exp);
    ds[j] = p[j] * (ds[j] - delta);
  }
  if (whole >= n) return;
  std::fill(p + whole, p + n, F(0));
  std::fill(ds + whole, ds + n, F(0));
}

template <class F>
void backward(const Head<F>& h, const Scratch<F>& s) {
  pack<F>({h.k, h.stride, Transpose::yes}, h.D, h.T, s.keys_across);
  pack<F>({h.v, h.stride, Transpose::yes}, h.D, h.T, s.values_across);
  pack<F>({h.k, h.stride}, h.T, h.D, s.keys);
  // The last tile comes first: it reaches all keys, so it can set dk and dv, and the others add.
  const int64_t last = (h.T - 1) / kTile * kTile;
  for (int64_t begin = last; begin >= 0; begin -= kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const Write write = begin == last ? Write::set : Write::add;
    const GemmFactor<F> q{h.q + begin * h.stride, h.stride},
        dy{h.dy + begin * h.stride_y, h.stride_y};
    gemm_packed<F>(
        {R, n, h.D, q, s.keys_across, h.D, s.scores, s.stride, Write::set, h.scale(), s.rest});
    gemm_packed<F>(
        {R, n, h.D, dy, s.values_across, h.D, s.gradients, s.stride, Write::set, F(1), s.rest});
    for (int64_t r = 0; r < R; ++r)
      backward_row(h, begin + r, n, s.scores + r * s.stride, s.gradients + r * s.stride);
    const GemmFactor<F> p_across{s.scores, s.stride, Transpose::yes};
    const GemmFactor<F> ds{s.gradients, s.stride}, ds_across{s.gradients, s.stride, Transpose::yes};
    pack(q, R, h.D, s.queries);
    pack(dy, R, h.D, s.dy);
    gemm_packed<F>({R, h.D, n, ds, s.keys, h.T, h.dq + begin * h.stride, h.stride, Write::set,
                    h.scale(), s.rest});
    gemm_packed<F>({n, h.D, R, ds_across, s.queries, R, h.dk, h.stride, write, h.scale(), s.rest});
    gemm_packed<F>({n, h.D, R, p_across, s.dy, R, h.dv, h.stride, write, F(1), s.rest});
  }
}

// bf16 and f16 are computed in fp32: each head is copied first. q, k, v, y, and for backward dy,
// dq, dk, dv.
constexpr int64_t kForwardCopies = 4, kBackwardCopies = 8;

template <class From, class To>
void convert(const From* from, int64_t stride_from, To* to, int64_t stride_to, int64_t T,
             int64_t D) {
  for (int64_t t = 0; t < T; ++t, from += stride_from, to += stride_to) {
#pragma omp simd
    for (int64_t d = 0; d < D; ++d) store(to[d], Compute<To>(from[d]));
  }
}

// One head in the tensors. `y` and `dy` have C channels per token, `qkv` and `dqkv` 3C.
template <class S>
struct Stored {
  using F = Compute<S>;
  int64_t T, C, D;
  const S* q;
  S* y;
  F* log_sum_exp;
  const S* dy = nullptr;  // backward only
  S* dq = nullptr;

  Head<F> where_it_lies() const requires std::is_same_v<S, F> {
    Head<F> h{T, D, 3 * C, q, q + C, q + 2 * C, C, y, log_sum_exp};
    if (dy) h.dy = dy, h.dq = dq, h.dk = dq + C, h.dv = dq + 2 * C;
    return h;
  }

  // The inputs copied, with room for the outputs.
  Head<F> copied(Cut<F>& cut) const {
    F* to[kBackwardCopies] = {};
    for (int64_t i = 0; i < (dy ? kBackwardCopies : kForwardCopies); ++i) to[i] = cut.take(T * D);
    for (int64_t i = 0; i < 3; ++i) convert(q + i * C, 3 * C, to[i], D, T, D);
    if (dy) convert(y, C, to[3], D, T, D), convert(dy, C, to[4], D, T, D);
    return {T, D, D, to[0], to[1], to[2], D, to[3], log_sum_exp, to[4], to[5], to[6], to[7]};
  }

  void run(F* workspace) const {
    Cut<F> cut{workspace};
    Head<F> h;
    if constexpr (std::is_same_v<S, F>)
      h = where_it_lies();
    else
      h = copied(cut);
    const Scratch<F> s = Scratch<F>::of(cut, T, D, dy != nullptr);
    dy ? backward(h, s) : forward(h, s);
    if constexpr (!std::is_same_v<S, F>) {
      if (!dy) return convert(h.y, D, y, C, T, D);
      const F* gradients[] = {h.dq, h.dk, h.dv};
      for (int64_t i = 0; i < 3; ++i) convert(gradients[i], D, dq + i * C, 3 * C, T, D);
    }
  }
};

// dy and dqkv are undefined in a forward pass.
void for_each_head(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv,
                   const Tensor& workspace) {
  const int64_t B = saved.qkv.dim(0), T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3,
                H = saved.heads, D = C / H;
  if (B * T * D == 0) return;
  for_float_type(saved.qkv.dtype(), [&](auto type) {
    using S = decltype(type);
    using F = Compute<S>;
    Stored<S> first{T,
                    C,
                    D,
                    saved.qkv.data<S>().data(),
                    saved.y.data<S>().data(),
                    saved.log_sum_exp.data<F>().data()};
    if (dy.defined()) first.dy = dy.data<S>().data(), first.dq = dqkv.data<S>().data();
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t h = 0; h < H; ++h) {
        Stored<S> head = first;
        const int64_t at = b * T * C + h * D, at_qkv = b * T * 3 * C + h * D;
        head.q += at_qkv, head.y += at, head.log_sum_exp += (b * H + h) * T;
        if (dy.defined()) head.dy += at, head.dq += at_qkv;
        head.run(static_cast<F*>(workspace.address()));
      }
    }
  });
}

int64_t workspace_bytes(int64_t T, int64_t D, Dtype dtype, bool backward) {
  if (T * D == 0) return 0;
  int64_t bytes = 0;
  for_float_type(dtype, [&](auto type) {
    using S = decltype(type);
    using F = Compute<S>;
    Cut<F> cut{nullptr};
    if (!std::is_same_v<S, F>)
      cut.used = (backward ? kBackwardCopies : kForwardCopies) * aligned(T * D);
    Scratch<F>::of(cut, T, D, backward);
    bytes = int64_t(sizeof(F)) * cut.used;
  });
  return bytes;
}

}  // namespace

int64_t attention_workspace(int64_t T, int64_t D, Dtype dtype) {
  return workspace_bytes(T, D, dtype, false);
}

int64_t attention_backward_workspace(int64_t T, int64_t D, Dtype dtype) {
  return workspace_bytes(T, D, dtype, true);
}

void CpuBackend::attention(const AttentionSaved& saved, const Tensor& workspace) {
  for_each_head(saved, {}, {}, workspace);
}

void CpuBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy,
                                    const Tensor& dqkv, const Tensor& workspace) {
  for_each_head(saved, dy, dqkv, workspace);
}

}  // namespace zl
