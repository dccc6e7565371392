// Arithmetic that the compiler vectorises and whose bits are fixed.
//
// All functions are branch-free and use only +, -, *, / and selections. So a result depends on the
// values alone, and not on alignment, on the compiler or on the width of its vectors. std::exp in a
// loop would be one call per element.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace zl {

// e^r for |r| <= ln 2 / 2: the polynomial of Cephes expf.
inline float exp_of_remainder(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r) + 1.0f;
}

// e^x within 1 ulp (relative error below 1.2e-7 where the result is normal). Overflow gives
// infinity, underflow a subnormal or 0, NaN stays NaN. Cody & Waite's reduction.
inline float exp_fast(float x) {
  // Beyond these limits the result is infinity or 0. The clamp keeps n in the range handled below.
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  // Adding 1.5 * 2^23 rounds to an integer, in the lowest bits.
  constexpr float kRound = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + kRound;
  const uint32_t n = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const float integer = shifted - kRound;
  // ln 2 in two parts; integer times the first part is exact.
  const float r = (x - integer * 0.693359375f) + integer * 2.12194440e-4f;
  const float p = exp_of_remainder(r);
  // 2^n as two factors: n is from -150 to 128, which exceeds the exponents of one float.
  const uint32_t half = uint32_t(int32_t(n) >> 1), rest = n - half;
  return p * std::bit_cast<float>((half + 127u) << 23) * std::bit_cast<float>((rest + 127u) << 23);
}
inline double exp_fast(double x) { return std::exp(x); }

// The number of partial sums of a vectorised sum: element i is added to lane i % kLanes.
inline constexpr int kLanes = 16;

// term(0) + … + term(n - 1): each lane in order of i, then the lanes pairwise. term returns float
// or double.
template <class Term>
inline auto sum_lanes(int64_t n, Term&& term) {
  using T = decltype(term(int64_t(0)));
  T lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  }
  for (int l = 0; i + l < n; ++l) lane[l] += term(i + l);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// The largest term; `floor` for n = 0. Ignores NaN.
template <class T, class Term>
inline T max_lanes(int64_t n, T floor, Term&& term) {
  T lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = floor;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) {
      const T value = term(i + l);
      lane[l] = value > lane[l] ? value : lane[l];
    }
  }
  for (int l = 0; i + l < n; ++l) {
    const T value = term(i + l);
    lane[l] = value > lane[l] ? value : lane[l];
  }
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
  return lane[0];
}

}  // namespace zl
