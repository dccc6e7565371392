// Block quantisation: Dettmers et al. 2022 (arXiv:2110.02861), section 2.1, with linear steps. For
// each group of 256 elements of a row:
//
//   scale = max |x| / steps (127 with 8 bits, 7 with 4),   code = x / scale, rounded half to even
//   x is about code * scale
//
// A group of zeros has scale 0. A scale is not subnormal, because x / scale would then be inexact.
// A group with NaN or infinity has such a scale and codes of 1: none of its elements comes back
// finite.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/reference/reference_backend.h"

namespace zl {
namespace {

// max |x|; NaN if there is one.
template <class T>
float largest_magnitude(std::span<const T> x) {
  float largest = 0;
  for (const T element : x) {
    const float magnitude = std::abs(float(element));
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
    if (std::isnan(largest)) break;
  }
  return largest;
}

float scale_of(float largest, int steps) {
  if (largest == 0) return 0;
  const float scale = largest / float(steps);
  return scale < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : scale;
}

int code_of(float x, float scale) {
  if (!std::isfinite(scale)) return 1;
  return scale == 0 ? 0 : int(std::nearbyint(x / scale));
}

// Element i of all codes. With 4 bits, an even i is in the low half of its byte.
void put(int code, uint8_t* codes, int64_t i, int bits) {
  if (bits == 8)
    codes[i] = uint8_t(code);
  else if (i % 2 == 0)
    codes[i / 2] = uint8_t(code & 15);
  else
    codes[i / 2] |= uint8_t(code << 4);
}

int get(const uint8_t* codes, int64_t i, int bits) {
  if (bits == 8) return int8_t(codes[i]);
  const int half = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
  return half < 8 ? half : half - 16;
}

// Calls f(group, its first element, elements) for every group of every row.
template <class F>
void for_groups(const Tensor& x, F&& f) {
  int64_t group = 0;
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t begin = 0; begin < x.dim(-1); begin += Quantized::kGroup)
      f(group++, row * x.dim(-1) + begin, std::min(Quantized::kGroup, x.dim(-1) - begin));
}

}  // namespace

void ReferenceBackend::quantize(const Tensor& from, const Quantized& to) {
  for_float_type(from.dtype(), [&]<class T>(T) {
    const std::span<const T> x = from.data<T>();
    for_groups(from, [&](int64_t group, int64_t first, int64_t n) {
      const float scale =
          scale_of(largest_magnitude(x.subspan(size_t(first), size_t(n))), to.largest());
      to.scales.data<float>()[size_t(group)] = scale;
      for (int64_t i = first; i < first + n; ++i)
        put(code_of(float(x[size_t(i)]), scale), to.codes.data<uint8_t>().data(), i, to.bits);
    });
  });
}

void ReferenceBackend::dequantize(const Quantized& from, const Tensor& to, Write write) {
  for_float_type(to.dtype(), [&]<class T>(T) {
    T* const x = to.data<T>().data();
    for_groups(to, [&](int64_t group, int64_t first, int64_t n) {
      const float scale = from.scales.data<float>()[size_t(group)];
      for (int64_t i = first; i < first + n; ++i) {
        const float value = float(get(from.codes.data<uint8_t>().data(), i, from.bits)) * scale;
        x[i] = T(write == Write::add ? Compute<T>(x[i]) + value : Compute<T>(value));
      }
    });
  });
}

}  // namespace zl
