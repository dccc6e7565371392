// Fills, casts, sums and GELU: loops over elements. Results do not depend on offsets or lengths.
//
// `omp simd` promises that no iteration reads what another writes. That also holds in place, where
// the compiler's own overlap check would choose the scalar loop.
#include <algorithm>
#include <cstring>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {

namespace {

template <class T>
void fill_all(std::span<T> out, T value) {
  in_parallel(int64_t(out.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::fill(out.data() + begin, out.data() + end, value);
  });
}

void copy_bytes(const char* from, char* to, int64_t bytes) {
  if (std::max(from, static_cast<const char*>(to)) <
      std::min(from, static_cast<const char*>(to)) + bytes)  // ranges of one storage that overlap
    return void(std::memmove(to, from, size_t(bytes)));
  in_parallel(bytes, 4 * kGrain, [&](int64_t begin, int64_t end) {
    if (begin < end) std::memcpy(to + begin, from + begin, size_t(end - begin));
  });
}

}  // namespace

void CpuBackend::fill(double value, const Tensor& out) {
  if (out.dtype() == Dtype::i32) return fill_all(out.data<int32_t>(), int32_t(value));
  for_float_type(out.dtype(), [&]<class T>(T) { fill_all(out.data<T>(), T(Compute<T>(value))); });
}

void CpuBackend::copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype())
    return copy_bytes(static_cast<const char*>(from.address()), static_cast<char*>(to.address()),
                      to.bytes());
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(to.dtype(), [&]<class T>(T) {
      const S* x = from.data<S>().data();
      T* y = to.data<T>().data();
      in_parallel(to.numel(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) store(y[i], Compute<T>(Compute<S>(x[i])));
      });
    });
  });
}

void CpuBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const T* pa = a.data<T>().data();
    const T* pb = b.data<T>().data();
    T* py = y.data<T>().data();
    in_parallel(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) store(py[i], F(pa[i]) + F(pb[i]));
    });
  });
}

void CpuBackend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(into.dtype(), [&]<class T>(T) {
      using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
      const S* x = from.data<S>().data();
      T* y = into.data<T>().data();
      in_parallel(into.numel(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) store(y[i], Compute<T>(F(y[i]) + F(x[i])));
      });
    });
  });
}

namespace {

constexpr double kSqrt2OverPi = 0.7978845608028654, kCubic = 0.044715;

// The number of elements that GELU computes at a time, in several loops. One loop would keep few
// elements in flight, because the operations on an element wait for each other.
constexpr int64_t kGeluBlock = 256;  // [n]

// e^-a in place, for 0 <= a <= 87.33, where the result and 2^n are normal numbers. exp_fast without
// its clamps, which would take a third of GELU's time.
void exp_of_minus(float* a, int64_t n) {
  constexpr float kRound = 12582912.0f;  // as in exp_fast
  float shifted[kGeluBlock];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    shifted[i] = a[i] * -1.44269504088896341f + kRound;
    const float integer = shifted[i] - kRound;
    a[i] = (-a[i] - integer * 0.693359375f) + integer * 2.12194440e-4f;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    a[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(exp_of_remainder(a[i])) +
                                (std::bit_cast<uint32_t>(shifted[i]) << 23));
}
void exp_of_minus(double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = std::exp(-a[i]);
}

// min(|x|, limit), 0 <= limit. A NaN in fp32 becomes the limit, because this compares integers: GCC
// clamps floats by branches.
inline float clamped_magnitude(float x, float limit) {
  return std::bit_cast<float>(
      std::min(std::bit_cast<int32_t>(x) & 0x7fffffff, std::bit_cast<int32_t>(limit)));
}
inline double clamped_magnitude(double x, double limit) { return std::min(std::abs(x), limit); }

// The tanh form of GELU, x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), is x times the
// logistic function of 2u. With e = exp(-|2u|), nothing overflows, and nothing cancels where tanh u
// is near -1. Beyond |x| = 10, e is below 2e-38: the result is x, or within 2e-37 of 0.
template <class F>
struct GeluTerms {
  F a[kGeluBlock], e[kGeluBlock];

  template <class T>
  GeluTerms(const T* x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      a[i] = clamped_magnitude(F(x[i]), F(10));
      e[i] = a[i] * (F(2 * kSqrt2OverPi) + F(2 * kSqrt2OverPi * kCubic) * (a[i] * a[i]));
    }
    exp_of_minus(e, n);
  }
};

template <class F>
inline F gelu_slope(F x, F a, F e) {
  const F inverse = F(1) / (F(1) + e), gate = (x < 0 ? e : F(1)) * inverse;
  const F slope_of_2u = F(2 * kSqrt2OverPi) + F(6 * kSqrt2OverPi * kCubic) * (a * a);
  const F bend = a * (e * inverse * inverse) * slope_of_2u;
  return gate + (x < 0 ? -bend : bend) + F(0) * x;  // the last term restores NaN, which `a` drops
}

template <Write write, class T>
void gelu_backward_block(int64_t n, const T* x, const T* dy, T* dx) {
  using F = Compute<T>;
  const GeluTerms<F> t(x, n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const F d = F(dy[i]) * gelu_slope(F(x[i]), t.a[i], t.e[i]);
    store(dx[i], write == Write::add ? F(dx[i]) + d : d);
  }
}

template <class T>
void gelu_block(int64_t n, const T* x, T* y) {
  using F = Compute<T>;
  const GeluTerms<F> t(x, n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const F in = F(x[i]);
    store(y[i], (in < 0 ? -t.a[i] * t.e[i] : in) / (F(1) + t.e[i]));
  }
}

// Calls block(begin, n) for blocks of at most kGeluBlock elements.
template <class Block>
void for_each_gelu_block(int64_t n, const Block& block) {
  in_parallel(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kGeluBlock) block(i, std::min(kGeluBlock, end - i));
  });
}

}  // namespace

void CpuBackend::gelu(const Tensor& x, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    const T* px = x.data<T>().data();
    T* py = y.data<T>().data();
    for_each_gelu_block(y.numel(), [=](int64_t i, int64_t n) { gelu_block(n, px + i, py + i); });
  });
}

void CpuBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  for_float_type(dx.dtype(), [&]<class T>(T) {
    const auto block = write == Write::add ? gelu_backward_block<Write::add, T>
                                           : gelu_backward_block<Write::set, T>;
    const T *px = x.data<T>().data(), *pdy = dy.data<T>().data();
    T* pdx = dx.data<T>().data();
    for_each_gelu_block(dx.numel(),
                        [=](int64_t i, int64_t n) { block(n, px + i, pdy + i, pdx + i); });
  });
}

void CpuBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t N = out.numel(), M = N ? x.numel() / N : 0;
    if (N == 0) return;
    // Rows are added in order; their sum is added to `out` and rounded to T once.
    F* sum = static_cast<F*>(workspace.address());
    const T* px = x.data<T>().data();
    T* y = out.data<T>().data();
    in_parallel(N, grain_of_columns(M), [=](int64_t begin, int64_t end) {
      std::fill(sum + begin, sum + end, F(0));
      for (int64_t m = 0; m < M; ++m) {
        const T* row = px + m * N;
#pragma omp simd
        for (int64_t n = begin; n < end; ++n) sum[n] += F(row[n]);
      }
#pragma omp simd
      for (int64_t n = begin; n < end; ++n) store(y[n], F(y[n]) + sum[n]);
    });
  });
}

}  // namespace zl
