#include <algorithm>
#include <cmath>

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

// dx of one row; adds the row's terms to dweight and dbias.
template <Write write, class T>
void backward_row(int64_t C, const Row<T>& row, const T* dy, T* dx, Compute<T>* dweight,
                  Compute<T>* dbias) {
  using F = Compute<T>;
  // With n = normalised x and d = dy * weight: dx = rstd * (d - mean(d) - n * mean(d * n)).
  const auto d = [&](int64_t c) { return F(dy[c]) * F(row.weight[c]); };
  const F mean_d = sum_lanes(C, d) / F(C);
  const F mean_dn = sum_lanes(C, [&](int64_t c) { return d(c) * row.normal(c); }) / F(C);
#pragma omp simd
  for (int64_t c = 0; c < C; ++c) {
    const F n = row.normal(c), incoming = F(dy[c]);
    const F value = row.rstd * (d(c) - mean_d - n * mean_dn);
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
    for (int64_t r = 0; r < R; ++r, x += C, out += C) {
      // Two passes: E[x^2] - E[x]^2 would cancel where the mean is large.
      const F m = sum_lanes(C, [&](int64_t c) { return F(x[c]); }) / F(C);
      const F variance =
          sum_lanes(C, [&](int64_t c) { return (F(x[c]) - m) * (F(x[c]) - m); }) / F(C);
      const Row<T> row{x, weight, mean[r] = m, rstd[r] = F(1) / std::sqrt(variance + F(eps))};
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) store(out[c], row.normal(c) * F(weight[c]) + F(shift[c]));
    }
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
    const auto backward =
        out.write_dx == Write::add ? backward_row<Write::add, T> : backward_row<Write::set, T>;
    for (int64_t r = 0; r < R; ++r) {
      const Row<T> row{x + r * C, weight, mean[r], rstd[r]};
      backward(C, row, incoming + r * C, dx + r * C, sum_weight, sum_bias);
    }
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      store(dweight[c], F(dweight[c]) + sum_weight[c]);
      store(dbias[c], F(dbias[c]) + sum_bias[c]);
    }
  });
}

}  // namespace zl
