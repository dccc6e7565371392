// The element types of tensors. Storage types differ; arithmetic is fp32 (fp64 for f64).
#pragma once

#include <bit>
#include <cstdint>

namespace zl {

enum class Dtype { f32, bf16, f16, f64, i32 };

constexpr int64_t size_of(Dtype t) {  // [B]
  return t == Dtype::f64 ? 8 : t == Dtype::bf16 || t == Dtype::f16 ? 2 : 4;
}

constexpr const char* name(Dtype t) {
  switch (t) {
    case Dtype::f32: return "f32";
    case Dtype::bf16: return "bf16";
    case Dtype::f16: return "f16";
    case Dtype::f64: return "f64";
    case Dtype::i32: return "i32";
  }
  return "?";
}

constexpr bool is_float(Dtype t) { return t != Dtype::i32; }

// bfloat16: the upper half of an fp32. Rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  operator float() const {
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
};

// IEEE half precision. Rounds to nearest even; overflow becomes infinity; subnormals are kept.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN, made quiet
      bits = uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    } else if (magnitude >= 0x47800000u) {  // 65536 and above
      bits = uint16_t(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 lets the FPU round to 2^-24
      const float small = std::bit_cast<float>(magnitude) + 0.5f;
      bits = uint16_t(sign | (std::bit_cast<uint32_t>(small) - 0x3f000000u));
    } else {  // rounding may carry into the exponent, up to infinity
      bits = uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
    }
  }
  operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float small = float(magnitude) * 0x1p-24f;
    return sign ? -small : small;
  }
};

// The type in which a kernel computes on values stored as T.
template <class T> struct ComputeOf { using type = float; };
template <> struct ComputeOf<double> { using type = double; };
template <class T> using Compute = typename ComputeOf<T>::type;

template <class T> struct DtypeOf;
template <> struct DtypeOf<float> { static constexpr Dtype value = Dtype::f32; };
template <> struct DtypeOf<bf16> { static constexpr Dtype value = Dtype::bf16; };
template <> struct DtypeOf<f16> { static constexpr Dtype value = Dtype::f16; };
template <> struct DtypeOf<double> { static constexpr Dtype value = Dtype::f64; };
template <> struct DtypeOf<int32_t> { static constexpr Dtype value = Dtype::i32; };
template <class T> inline constexpr Dtype dtype_of = DtypeOf<T>::value;

}  // namespace zl
