// Block quantisation: Dettmers et al. 2022 (arXiv:2110.02861), section 2.1, with linear steps. For
// each group of 256 elements of a row:
//
//   scale = max |x| / steps (127 with 8 bits, 7 with 4),   code = x / scale, rounded half to even
//   x is about code * scale
//
// A group of zeros has scale 0. A scale is not subnormal, because x / scale would then be inexact.
// A group with NaN or infinity has such a scale and codes of 1: none of its elements comes back
// finite.
// The fast kernels of the CPU use these functions too.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace zl::reference {

// largest: max |x| of the group, NaN if there is one.
inline float scale_of(float largest, int steps) {
  if (largest == 0) return 0;
  const float scale = largest / float(steps);
  return scale < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : scale;
}

inline int code_of(float x, float scale) {
  if (!std::isfinite(scale)) return 1;
  return scale == 0 ? 0 : int(std::nearbyint(x / scale));
}

// Element i of all codes. With 4 bits, an even i is in the low half of its byte, and is put first.
inline void put_code(int code, uint8_t* codes, int64_t i, int bits) {
  if (bits == 8)
    codes[i] = uint8_t(code);
  else if (i % 2 == 0)
    codes[i / 2] = uint8_t(code & 15);
  else
    codes[i / 2] |= uint8_t(code << 4);
}

inline int get_code(const uint8_t* codes, int64_t i, int bits) {
  if (bits == 8) return int8_t(codes[i]);
  const int half = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
  return half < 8 ? half : half - 16;
}

}  // namespace zl::reference
