// The element types of tensors. Storage types differ; arithmetic is fp32 (fp64 for f64).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tensor/error.h"

// Kernels for GPUs use these types too.
#ifdef __CUDACC__
#define ZL_DEVICE __host__ __device__
#else
#define ZL_DEVICE
#endif

namespace zl {

enum class Dtype { f32, bf16, f16, f64, i32, u8 };  // u8: bytes that are only communicated

constexpr int64_t size_of(Dtype t) {  // [B]
  return t == Dtype::f64 ? 8 : t == Dtype::bf16 || t == Dtype::f16 ? 2 : t == Dtype::u8 ? 1 : 4;
}

constexpr const char* name(Dtype t) {
  constexpr const char* names[] = {"f32", "bf16", "f16", "f64", "i32", "u8"};
  return names[size_t(t)];
}

constexpr bool is_float(Dtype t) { return t != Dtype::i32 && t != Dtype::u8; }

// The type in which kernels compute on values of type t; also that of row statistics and states.
constexpr Dtype compute_type(Dtype t) { return t == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

// bfloat16: the upper half of an fp32. Rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  [[gnu::always_inline]] ZL_DEVICE explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
  }
  [[gnu::always_inline]] ZL_DEVICE operator float() const {
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
};

// IEEE half precision. Rounds to nearest even; overflow becomes infinity; subnormals are kept.
// Selections instead of branches let the compiler vectorise loops over it.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  [[gnu::always_inline]] ZL_DEVICE explicit f16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), sign = (u >> 16) & 0x8000u;
    const int32_t magnitude = int32_t(u & 0x7fffffffu);  // signed: AVX2 compares no other integers
    // Below 2^-14, adding 0.5 makes the FPU round to a multiple of 2^-24.
    const int32_t subnormal =
        std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    // May carry up to infinity.
    const int32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    const int32_t quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    int32_t half = magnitude < 0x38800000 ? subnormal : normal;
    half = magnitude >= 0x47800000 ? 0x7c00 : half;  // 65536 and above
    half = magnitude > 0x7f800000 ? quiet_nan : half;
    bits = uint16_t(sign | uint32_t(half));
  }
  [[gnu::always_inline]] ZL_DEVICE operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
    const uint32_t magnitude = uint32_t(bits & 0x7fffu) << 13;
    // Changes the exponent's bias from 15 to 127, exactly, also for subnormals.
    const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    return std::bit_cast<float>(
        sign | (int32_t(magnitude) >= 0x0f800000 ? magnitude | 0x7f800000u : finite));
  }
};

// The type in which a kernel computes on values stored as T.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

// to = T(value). GCC 12 does not vectorise an `omp simd` loop that assigns a struct, so the 16-bit
// types are assigned through their bits.
template <class T>
[[gnu::always_inline]] ZL_DEVICE inline void store(T& to, Compute<T> value) {
  if constexpr (std::is_floating_point_v<T>)
    to = value;
  else
    to.bits = T(value).bits;
}

// The Dtype of an element type; other types do not compile.
template <class T>
inline constexpr Dtype dtype_of = std::is_same_v<T, float>     ? Dtype::f32
                                  : std::is_same_v<T, bf16>    ? Dtype::bf16
                                  : std::is_same_v<T, f16>     ? Dtype::f16
                                  : std::is_same_v<T, double>  ? Dtype::f64
                                  : std::is_same_v<T, int32_t> ? Dtype::i32
                                  : std::is_same_v<T, uint8_t> ? Dtype::u8
                                                               : throw "not an element type";

// Calls f(T{}) with the storage type T of a float `dtype`: f is a generic function over T.
template <class F>
void for_float_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32: return f(float{});
    case Dtype::bf16: return f(bf16{});
    case Dtype::f16: return f(f16{});
    case Dtype::f64: return f(double{});
    default: refuse("dtype ", name(dtype), " is not a floating-point type");
  }
}

// The same for two dtypes: f is a generic function over the types of both.
template <class F>
void for_float_types(Dtype a, Dtype b, F&& f) {
  for_float_type(
      a, [&]<class A>(A zero) { for_float_type(b, [&]<class B>(B other) { f(zero, other); }); });
}

}  // namespace zl
