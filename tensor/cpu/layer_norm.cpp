#include <algorithm>
#include <cmath>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

template <class T>
struct Row {
  const T *x, *weight;
  Compute<T> mean, rstd;
  Compute<T> normal(int64_t c) const { return (Compute<T>(x[c]) - mean) * rstd; }
};

// The gradient of one row. With n = normalised x and d = dy * weight:
// dx = rstd * (d - mean(d) - n * mean(d * n)).
template <class T>
struct RowBackward {
  using F = Compute<T>;
  Row<T> row;
  const T* dy;
  F mean_d = 0, mean_dn = 0;
  F d(int64_t c) const { return F(dy[c]) * F(row.weight[c]); }

  void find_means(int64_t C) {
    mean_d = sum_lanes(C, [this](int64_t c) { return d(c); }) / F(C);
    mean_dn = sum_lanes(C, [this](int64_t c) { return d(c) * row.normal(c); }) / F(C);
  }
};

// Columns [begin, end) of dx; adds the row's terms to dweight and dbias.
template <Write write, class T, class F>
void backward_row(int64_t begin, int64_t end, RowBackward<T> of, T* dx, F* dweight, F* dbias) {
#pragma omp simd
  for (int64_t c = begin; c < end; ++c) {
    const F n = of.row.normal(c), incoming = F(of.dy[c]);
    const F value = of.row.rstd * (of.d(c) - of.mean_d - n * of.mean_dn);
    dweight[c] += incoming * n;
    dbias[c] += incoming;
    store(dx[c], write == Write::add ? F(dx[c]) + value : value);
  }
}

}  // namespace

void CpuBackend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                            const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel();
    const T *x = saved.x.data<T>().data(), *weight = saved.weight.data<T>().data(),
            *shift = bias.data<T>().data();
    F *mean = saved.mean.data<F>().data(), *rstd = saved.rstd.data<F>().data();
    T* out = y.data<T>().data();
    in_parallel(R, grain_of(C), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = x + r * C;
        T* to = out + r * C;
        // Two passes: E[x^2] - E[x]^2 would cancel where the mean is large.
        const F m = sum_lanes(C, [&](int64_t c) { return F(in[c]); }) / F(C);
        const F variance =
            sum_lanes(C, [&](int64_t c) { return (F(in[c]) - m) * (F(in[c]) - m); }) / F(C);
        const Row<T> row{in, weight, mean[r] = m, rstd[r] = F(1) / std::sqrt(variance + F(eps))};
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) store(to[c], row.normal(c) * F(weight[c]) + F(shift[c]));
      }
    });
  });
}

void CpuBackend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                                     const LayerNormGradients& out, const Tensor& workspace) {
  for_float_type(dy.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel();
    if (C == 0) return;
    const T *x = saved.x.data<T>().data(), *weight = saved.weight.data<T>().data(),
            *incoming = dy.data<T>().data();
    const F *mean = saved.mean.data<F>().data(), *rstd = saved.rstd.data<F>().data();
    T *dx = out.dx.data<T>().data(), *dweight = out.dweight.data<T>().data(),
      *dbias = out.dbias.data<T>().data();
    // Rows are added in order; their sums are added to the gradient buffers and rounded to T once.
    F *sum_weight = static_cast<F*>(workspace.address()), *sum_bias = sum_weight + C;
    std::fill_n(sum_weight, 2 * C, F(0));
    const auto backward = out.write_dx == Write::add ? backward_row<Write::add, T, F>
                                                     : backward_row<Write::set, T, F>;
    // Threads split the rows for the means, then the columns. One thread does both row after row.
    constexpr int64_t kAtOnce = 256;
    RowBackward<T> rows[kAtOnce];
    const int64_t at_once = compute_threads() == 1 ? 1 : kAtOnce;
    for (int64_t first = 0; first < R; first += at_once) {
      const int64_t count = std::min(at_once, R - first);
      in_parallel(count, grain_of(C), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t at = (first + r) * C;
          rows[r] = {{x + at, weight, mean[first + r], rstd[first + r]}, incoming + at};
          rows[r].find_means(C);
        }
      });
      in_parallel(C, grain_of_columns(count), [&](int64_t begin, int64_t end) {
        for (int64_t r = 0; r < count; ++r)
          backward(begin, end, rows[r], dx + (first + r) * C, sum_weight, sum_bias);
      });
    }
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      store(dweight[c], F(dweight[c]) + sum_weight[c]);
      store(dbias[c], F(dbias[c]) + sum_bias[c]);
    }
  });
}

}  // namespace zl
