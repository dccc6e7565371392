// Fills, casts, sums and GELU: loops over elements. Results do not depend on offsets or lengths.
//
// `omp simd` promises that no iteration reads what another writes. That also holds in place, where
// the compiler's own overlap check would choose the scalar loop.
#include <algorithm>
#include <cstring>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {

void CpuBackend::fill(double value, const Tensor& out) {
  if (out.dtype() == Dtype::i32)
    return void(std::ranges::fill(out.data<int32_t>(), int32_t(value)));
  for_float_type(out.dtype(),
                 [&]<class T>(T) { std::ranges::fill(out.data<T>(), T(Compute<T>(value))); });
}

void CpuBackend::copy(const Tensor& from, const Tensor& to) {
  // memmove, because both may be ranges of one storage.
  if (from.dtype() == to.dtype()) {
    if (to.numel() > 0) std::memmove(to.address(), from.address(), size_t(to.bytes()));
    return;
  }
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(to.dtype(), [&]<class T>(T) {
      const S* x = from.data<S>().data();
      T* y = to.data<T>().data();
      const int64_t n = to.numel();
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) store(y[i], Compute<T>(Compute<S>(x[i])));
    });
  });
}

void CpuBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const T* pa = a.data<T>().data();
    const T* pb = b.data<T>().data();
    T* py = y.data<T>().data();
    const int64_t n = y.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(py[i], F(pa[i]) + F(pb[i]));
  });
}

void CpuBackend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(into.dtype(), [&]<class T>(T) {
      using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
      const S* x = from.data<S>().data();
      T* y = into.data<T>().data();
      const int64_t n = into.numel();
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) store(y[i], Compute<T>(F(y[i]) + F(x[i])));
    });
  });
}

namespace {

constexpr double kSqrt2OverPi = 0.7978845608028654, kCubic = 0.044715;

// e^-a for 0 <= a <= 87.33, where the result and 2^n are normal numbers. exp_fast without its
// clamps, which would take a third of GELU's time.
inline float exp_of_minus(float a) {
  constexpr float kRound = 12582912.0f;  // as in exp_fast
  const float shifted = a * -1.44269504088896341f + kRound, integer = shifted - kRound;
  const float r = (-a - integer * 0.693359375f) + integer * 2.12194440e-4f;
  const float p = exp_of_remainder(r);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                              (std::bit_cast<uint32_t>(shifted) << 23));
}
inline double exp_of_minus(double a) { return std::exp(-a); }

// min(|x|, limit), 0 <= limit; NaN becomes the limit. In integers: GCC clamps floats by branches.
inline float clamped_magnitude(float x, float limit) {
  return std::bit_cast<float>(
      std::min(std::bit_cast<int32_t>(x) & 0x7fffffff, std::bit_cast<int32_t>(limit)));
}
inline double clamped_magnitude(double x, double limit) { return std::min(std::abs(x), limit); }

// The tanh form of GELU, x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), is x times the
// logistic function of 2u. With e = exp(-|2u|), nothing overflows, and nothing cancels where tanh u
// is near -1. Beyond |x| = 10, e is below 2e-38, and the result is exactly x or 0.
template <class F>
struct GeluTerms {
  F a, e;
  explicit GeluTerms(F x) : a(clamped_magnitude(x, F(10))) {
    e = exp_of_minus(a * (F(2 * kSqrt2OverPi) + F(2 * kSqrt2OverPi * kCubic) * (a * a)));
  }
};

template <class F>
inline F gelu_value(F x) {
  const GeluTerms<F> t(x);
  return (x < 0 ? -t.a * t.e : x) / (F(1) + t.e);
}

template <class F>
inline F gelu_slope(F x) {
  const GeluTerms<F> t(x);
  const F inverse = F(1) / (F(1) + t.e), gate = (x < 0 ? t.e : F(1)) * inverse;
  const F slope_of_2u = F(2 * kSqrt2OverPi) + F(6 * kSqrt2OverPi * kCubic) * (t.a * t.a);
  const F bend = t.a * (t.e * inverse * inverse) * slope_of_2u;
  return gate + (x < 0 ? -bend : bend) + F(0) * x;  // the last term restores NaN, which `a` drops
}

template <Write write, class T>
void gelu_backward_loop(int64_t n, const T* x, const T* dy, T* dx) {
  using F = Compute<T>;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const F d = F(dy[i]) * gelu_slope(F(x[i]));
    store(dx[i], write == Write::add ? F(dx[i]) + d : d);
  }
}

}  // namespace

void CpuBackend::gelu(const Tensor& x, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const T* px = x.data<T>().data();
    T* py = y.data<T>().data();
    const int64_t n = y.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(py[i], gelu_value(F(px[i])));
  });
}

void CpuBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  for_float_type(dx.dtype(), [&]<class T>(T) {
    const auto loop =
        write == Write::add ? gelu_backward_loop<Write::add, T> : gelu_backward_loop<Write::set, T>;
    loop(dx.numel(), x.data<T>().data(), dy.data<T>().data(), dx.data<T>().data());
  });
}

void CpuBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t N = out.numel(), M = N ? x.numel() / N : 0;
    if (N == 0) return;
    // Rows are added in order; their sum is added to `out` and rounded to T once.
    F* sum = static_cast<F*>(workspace.address());
    const T* row = x.data<T>().data();
    T* y = out.data<T>().data();
    std::fill_n(sum, N, F(0));
    for (int64_t m = 0; m < M; ++m, row += N) {
#pragma omp simd
      for (int64_t n = 0; n < N; ++n) sum[n] += F(row[n]);
    }
#pragma omp simd
    for (int64_t n = 0; n < N; ++n) store(y[n], F(y[n]) + sum[n]);
  });
}

}  // namespace zl
