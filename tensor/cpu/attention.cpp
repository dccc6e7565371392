// Causal attention, head by head, a tile of queries at a time against the keys up to the end of the tile: the masked
// half of the scores is neither stored nor, apart from the tiles on the diagonal, computed.
//
// A row of scores is exactly 0 beyond its diagonal, and every product sums over the keys in their order, so the result
// of a query depends neither on the tile in which it lies nor on how many tokens follow it.
#include "tensor/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/store.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

constexpr int64_t kTile = 64;  // queries

int64_t aligned(int64_t elements) { return (elements + kLanes - 1) / kLanes * kLanes; }

// One head in the compute type: contiguous (T, D) each.
template <class F>
struct Head {
  int64_t T, D;
  const F *q, *k, *v;
  F* y;
  F* log_sum_exp;  // (T)
  const F* dy = nullptr;
  F *dq = nullptr, *dk = nullptr, *dv = nullptr;
  F scale() const { return F(1) / std::sqrt(F(D)); }
};

// Scratch of one tile: rows of scores (and of their gradients), then whatever gemm wants.
template <class F>
struct Scratch {
  F *scores, *gradients;
  int64_t stride;
  F* rest;
};

template <class F>
int64_t scratch_elements(int64_t T, int64_t D, int64_t matrices) {
  const int64_t R = std::min(T, kTile);
  return matrices * R * aligned(T) + std::max({gemm_workspace<F>(R, T, D), gemm_workspace<F>(R, D, T), gemm_workspace<F>(T, D, R)});
}

template <class F>
Scratch<F> cut(F* from, int64_t T, int64_t matrices) {
  const int64_t size = std::min(T, kTile) * aligned(T);
  return {from, from + (matrices - 1) * size, aligned(T), from + matrices * size};
}

// Sets what lies beyond the diagonal so that exp gives 0: up to the end of the last lane, so that rows are whole vectors.
template <class F>
int64_t mask(F* row, int64_t length) {
  const int64_t whole = aligned(length);
  std::fill(row + length, row + whole, -std::numeric_limits<F>::infinity());
  return whole;
}

template <class F>
void forward(const Head<F>& h, const Scratch<F>& s) {
  for (int64_t begin = 0; begin < h.T; begin += kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const GemmFactor<F> q{h.q + begin * h.D, h.D}, k{h.k, h.D, Transpose::yes}, p{s.scores, s.stride}, v{h.v, h.D};
    gemm<F>({R, n, h.D, q, k, s.scores, s.stride, Write::set, h.scale(), s.rest});
    F sums[kTile];
    for (int64_t r = 0; r < R; ++r) {
      F* row = s.scores + r * s.stride;
      const int64_t whole = mask(row, begin + r + 1);
      const F largest = max_lanes(whole, row[0], [&](int64_t j) { return row[j]; });
      sums[r] = sum_lanes(whole, [&](int64_t j) { return row[j] = exp_fast(row[j] - largest); });
      std::fill(row + std::min(whole, n), row + n, F(0));
      h.log_sum_exp[begin + r] = largest + std::log(sums[r]);
    }
    F* y = h.y + begin * h.D;
    gemm<F>({R, h.D, n, p, v, y, h.D, Write::set, F(1), s.rest});
    for (int64_t r = 0; r < R; ++r) {  // dividing D values is less than dividing n weights
      const F inverse = F(1) / sums[r];
#pragma omp simd
      for (int64_t d = 0; d < h.D; ++d) y[r * h.D + d] *= inverse;
    }
  }
}

// Probabilities P from scores, and dS = P * (dP - sum(dy * y)), both exactly 0 beyond the diagonal.
template <class F>
void backward_row(const Head<F>& h, int64_t query, int64_t n, F* p, F* ds) {
  const F *y = h.y + query * h.D, *dy = h.dy + query * h.D;
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
  // The last tile comes first: it reaches all keys, so it can set dk and dv, and the others add.
  const int64_t last = (h.T - 1) / kTile * kTile;
  for (int64_t begin = last; begin >= 0; begin -= kTile) {
    const int64_t R = std::min(kTile, h.T - begin), n = begin + R;
    const Write write = begin == last ? Write::set : Write::add;
    const GemmFactor<F> q{h.q + begin * h.D, h.D}, dy{h.dy + begin * h.D, h.D};
    const GemmFactor<F> keys{h.k, h.D}, keys_across{h.k, h.D, Transpose::yes}, values_across{h.v, h.D, Transpose::yes};
    gemm<F>({R, n, h.D, q, keys_across, s.scores, s.stride, Write::set, h.scale(), s.rest});
    gemm<F>({R, n, h.D, dy, values_across, s.gradients, s.stride, Write::set, F(1), s.rest});
    for (int64_t r = 0; r < R; ++r) backward_row(h, begin + r, n, s.scores + r * s.stride, s.gradients + r * s.stride);
    const GemmFactor<F> p_across{s.scores, s.stride, Transpose::yes};
    const GemmFactor<F> ds{s.gradients, s.stride}, ds_across{s.gradients, s.stride, Transpose::yes};
    gemm<F>({R, h.D, n, ds, keys, h.dq + begin * h.D, h.D, Write::set, h.scale(), s.rest});
    gemm<F>({n, h.D, R, ds_across, q, h.dk, h.D, write, h.scale(), s.rest});
    gemm<F>({n, h.D, R, p_across, dy, h.dv, h.D, write, F(1), s.rest});
  }
}

// Each head is copied to contiguous buffers of the compute type first, even from fp32: the 3C channels between the
// tokens of a head map to few cache sets, and every tile would run through them again.
// q, k, v, y, and for backward dy, dq, dk, dv.
constexpr int64_t kForwardCopies = 4, kBackwardCopies = 8;

template <class From, class To>
void convert(const From* from, int64_t stride_from, To* to, int64_t stride_to, int64_t T, int64_t D) {
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

  // The inputs copied to `to`, with room for the outputs behind them.
  Head<F> load(F* to) const {
    const auto copy = [&](int64_t i) { return to + i * aligned(T * D); };
    for (int64_t i = 0; i < 3; ++i) convert(q + i * C, 3 * C, copy(i), D, T, D);
    Head<F> h{T, D, copy(0), copy(1), copy(2), copy(3), log_sum_exp};
    if (!dy) return h;
    convert(y, C, copy(3), D, T, D);
    convert(dy, C, copy(4), D, T, D);
    h.dy = copy(4), h.dq = copy(5), h.dk = copy(6), h.dv = copy(7);
    return h;
  }

  void run(F* workspace) const {
    const Head<F> h = load(workspace);
    if (!dy) {
      forward(h, cut(workspace + kForwardCopies * aligned(T * D), T, 1));
      return convert(h.y, D, y, C, T, D);
    }
    backward(h, cut(workspace + kBackwardCopies * aligned(T * D), T, 2));
    const F* gradients[] = {h.dq, h.dk, h.dv};
    for (int64_t i = 0; i < 3; ++i) convert(gradients[i], D, dq + i * C, 3 * C, T, D);
  }
};

// dy and dqkv are undefined in a forward pass.
void for_each_head(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv, const Tensor& workspace) {
  const int64_t B = saved.qkv.dim(0), T = saved.qkv.dim(1), C = saved.qkv.dim(2) / 3, H = saved.heads, D = C / H;
  if (B * T * C == 0) return;
  for_float_type(saved.qkv.dtype(), [&](auto type) {
    using S = decltype(type);
    using F = Compute<S>;
    Stored<S> first{T, C, D, saved.qkv.data<S>().data(), saved.y.data<S>().data(), saved.log_sum_exp.data<F>().data()};
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

template <class F>
int64_t workspace_bytes(int64_t T, int64_t D, int64_t copies, int64_t matrices) {
  if (T * D == 0) return 0;
  return int64_t(sizeof(F)) * (copies * aligned(T * D) + scratch_elements<F>(T, D, matrices));
}

}  // namespace

int64_t attention_workspace(int64_t T, int64_t D, Dtype dtype) {
  return (dtype == Dtype::f64 ? workspace_bytes<double> : workspace_bytes<float>)(T, D, kForwardCopies, 1);
}

int64_t attention_backward_workspace(int64_t T, int64_t D, Dtype dtype) {
  return (dtype == Dtype::f64 ? workspace_bytes<double> : workspace_bytes<float>)(T, D, kBackwardCopies, 2);
}

void CpuBackend::attention(const AttentionSaved& saved, const Tensor& workspace) { for_each_head(saved, {}, {}, workspace); }

void CpuBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy, const Tensor& dqkv, const Tensor& workspace) {
  for_each_head(saved, dy, dqkv, workspace);
}

}  // namespace zl
