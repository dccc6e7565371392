// Layer norm: Ba et al. 2016 (arXiv:1607.06450), equation 4. For each row x of C elements:
//
//   mean = 1/C sum x,   rstd = 1 / sqrt(1/C sum (x - mean)^2 + eps),
//   n = (x - mean) rstd,   y = n weight + bias
//
// The variance needs the mean first: E[x^2] - E[x]^2 would cancel where the mean is large.
//
// Backward. weight and bias reach every row: dweight += sum of dy n, dbias += sum of dy, over rows.
// x reaches y in three ways: directly, through the mean, and through rstd. With d = dy weight, the
// gradient of n, the chain rule gives
//
//   dx = rstd (d - 1/C sum d - n 1/C sum (d n))
//
// The second term is the part of d along (1, 1, …), which the mean removes from x; the third is the
// part along n, which the division by the deviation removes: adding a constant to x or scaling it
// changes no y.
#include <cmath>

#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

template <class Term>
auto sum_over(int64_t n, Term term) {
  decltype(term(int64_t(0))) sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += term(i);
  return sum;
}

}  // namespace

void kernel::layer_norm(const LayerNormSaved& s, const Tensor& bias, double eps, const Tensor& y) {
  const int64_t c = s.x.dim(-1);
  require_same("layer_norm", s.x, {&y});
  require_is("layer_norm", "the weight", s.weight, c, y.dtype());
  require_is("layer_norm", "the bias", bias, c, y.dtype());
  for (const Tensor* statistics : {&s.mean, &s.rstd})
    require_is("layer_norm", "row statistics", *statistics, s.x.rows(), compute_type(y.dtype()));
  recorded("layer_norm", y, 8 * y.numel(), {&s.x, &s.weight, &bias, &s.mean, &s.rstd, &y})
      .layer_norm(s, bias, eps, y);
}

void Backend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                         const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel();
    const T *weight = saved.weight.data<T>().data(), *shift = bias.data<T>().data();
    for (int64_t r = 0; r < R; ++r) {
      const T* x = saved.x.data<T>().data() + r * C;
      const F mean = sum_over(C, [&](int64_t c) { return F(x[c]); }) / F(C);
      const F variance =
          sum_over(C, [&](int64_t c) { return (F(x[c]) - mean) * (F(x[c]) - mean); }) / F(C);
      const F rstd = 1 / std::sqrt(variance + F(eps));
      T* const out = y.data<T>().data() + r * C;
      for (int64_t c = 0; c < C; ++c)
        out[c] = T((F(x[c]) - mean) * rstd * F(weight[c]) + F(shift[c]));
      saved.mean.data<F>()[size_t(r)] = mean;
      saved.rstd.data<F>()[size_t(r)] = rstd;
    }
  });
}

void kernel::layer_norm_backward(const LayerNormSaved& s, const Tensor& dy,
                                 const LayerNormGradients& out) {
  require_same("layer_norm_backward", s.x, {&dy, &out.dx});
  require_same("layer_norm_backward", s.weight, {&out.dweight, &out.dbias});
  recorded("layer_norm_backward", out.dx, 14 * dy.numel(),
           {&s.x, &s.weight, &s.mean, &s.rstd, &dy, &out.dx, &out.dweight, &out.dbias})
      .layer_norm_backward(
          s, dy, out, workspace(KernelId::layer_norm_backward, {dy.rows(), dy.dim(-1)}, out.dx));
}

void Backend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& gradient,
                                  const LayerNormGradients& out, const Tensor&) {
  for_float_type(gradient.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel();
    const T *x = saved.x.data<T>().data(), *weight = saved.weight.data<T>().data(),
            *dy = gradient.data<T>().data();
    const F *mean = saved.mean.data<F>().data(), *rstd = saved.rstd.data<F>().data();
    const auto n = [&](int64_t r, int64_t c) { return (F(x[r * C + c]) - mean[r]) * rstd[r]; };
    const auto d = [&](int64_t r, int64_t c) { return F(dy[r * C + c]) * F(weight[c]); };

    T *dweight = out.dweight.data<T>().data(), *dbias = out.dbias.data<T>().data();
    for (int64_t c = 0; c < C; ++c) {
      const F of_weight = sum_over(R, [&](int64_t r) { return F(dy[r * C + c]) * n(r, c); });
      const F of_bias = sum_over(R, [&](int64_t r) { return F(dy[r * C + c]); });
      dweight[c] = T(F(dweight[c]) + of_weight);
      dbias[c] = T(F(dbias[c]) + of_bias);
    }

    for (int64_t r = 0; r < R; ++r) {
      const F mean_d = sum_over(C, [&](int64_t c) { return d(r, c); }) / F(C);
      const F mean_dn = sum_over(C, [&](int64_t c) { return d(r, c) * n(r, c); }) / F(C);
      T* const dx = out.dx.data<T>().data() + r * C;
      for (int64_t c = 0; c < C; ++c) {
        const F value = rstd[r] * (d(r, c) - mean_d - n(r, c) * mean_dn);
        dx[c] = T(out.write_dx == Write::add ? F(dx[c]) + value : value);
      }
    }
  });
}

}  // namespace zl
