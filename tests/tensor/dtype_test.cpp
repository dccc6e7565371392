#include "tensor/dtype.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

namespace {

using namespace zl;

// The value of the bits of a small float type, from the definition of IEEE 754.
double value_of(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
            mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
constexpr int kExponentBits = 0;
template <>
constexpr int kExponentBits<bf16> = 8;
template <>
constexpr int kExponentBits<f16> = 5;

template <class T>
T from_bits(uint16_t bits) {
  T t;
  t.bits = bits;
  return t;
}

template <class T>
int wrong_values() {
  int wrong = 0;
  for (uint32_t b = 0; b < 65536; ++b) {
    const T t = from_bits<T>(uint16_t(b));
    const double expected = value_of(uint16_t(b), kExponentBits<T>);
    const float value = t;
    const bool back_same =
        T(value).bits == b || std::isnan(expected);  // a signalling NaN may become quiet
    const bool same =
        std::isnan(expected)
            ? std::isnan(value) && std::isnan(float(T(value))) && std::signbit(value) == (b >> 15)
            : double(value) == expected && std::signbit(value) == (b >> 15);
    wrong += !same || !back_same;
  }
  return wrong;
}

TEST_CASE(
    "all 65,536 patterns of bf16 and f16 have their IEEE value and convert back to the same bits",
    "[tensor]") {
  CHECK(wrong_values<bf16>() == 0);
  CHECK(wrong_values<f16>() == 0);
  CHECK(value_of(0x3c00, 5) == 1);
  CHECK(value_of(0x3c00, 8) != 1);  // the types are distinguished
}

// Around the midpoint between every two neighbours: values below it round down, values above it up,
// the midpoint to the even one.
template <class T>
int wrong_roundings() {
  int wrong = 0;
  const uint16_t infinity = uint16_t(((1 << kExponentBits<T>)-1) << (15 - kExponentBits<T>));
  for (uint16_t b = 0; b < infinity; ++b) {
    const double low = value_of(b, kExponentBits<T>),
                 previous = b ? value_of(uint16_t(b - 1), kExponentBits<T>) : 0;
    const double high =
        b + 1 < infinity ? value_of(uint16_t(b + 1), kExponentBits<T>) : low + (low - previous);
    const float middle =
        float(low + (high - low) /
                        2);  // exact, except below the smallest fp32 number: then it is skipped
    if (double(middle) != low + (high - low) / 2) continue;
    for (float sign : {1.0f, -1.0f}) {
      const uint16_t s = sign < 0 ? 0x8000 : 0;
      const uint16_t below = T(sign * std::nextafter(middle, 0.0f)).bits,
                     on = T(sign * middle).bits;
      const uint16_t above =
          T(sign * std::nextafter(middle, std::numeric_limits<float>::infinity())).bits;
      wrong += below != (b | s) || on != ((b + (b & 1)) | s) || above != ((b + 1) | s);
    }
  }
  return wrong;
}

TEST_CASE("bf16 and f16 round to nearest, ties to even, into infinity and through subnormals",
          "[tensor]") {
  CHECK(wrong_roundings<bf16>() == 0);
  CHECK(wrong_roundings<f16>() == 0);
}

TEST_CASE("f16 agrees with rounding in double on fp32 numbers of every exponent", "[tensor]") {
  int wrong = 0;
  for (uint64_t u = 0; u < (uint64_t(1) << 32); u += 9973) {
    const float x = std::bit_cast<float>(uint32_t(u));
    if (std::isnan(x)) {
      wrong += !std::isnan(float(f16(x))) || !std::isnan(float(bf16(x)));
      continue;
    }
    const int exponent = std::max(std::ilogb(std::abs(x)), -14);
    const double step = std::ldexp(1.0, exponent - 10),
                 rounded = std::nearbyint(double(x) / step) * step;
    const double expected = std::abs(rounded) > 65504
                                ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                : rounded;
    wrong += x != 0 && double(float(f16(x))) != expected;
  }
  CHECK(wrong == 0);
}

TEST_CASE("NaN with any payload stays NaN of the same sign", "[tensor]") {
  for (uint32_t u : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f80ffffu, 0xff800001u, 0xffc00000u,
                     0xffffffffu}) {
    const float nan = std::bit_cast<float>(u);
    CHECK((std::isnan(float(bf16(nan))) && std::isnan(float(f16(nan)))));
    CHECK((bf16(nan).bits >> 15 == u >> 31 && f16(nan).bits >> 15 == u >> 31));
  }
  CHECK_FALSE(std::isnan(float(f16(std::bit_cast<float>(0x7f800000u)))));
}

TEST_CASE("sizes, names and compute types of the element types", "[tensor]") {
  CHECK((size_of(Dtype::f32) == 4 && size_of(Dtype::f64) == 8 && size_of(Dtype::bf16) == 2 &&
         size_of(Dtype::f16) == 2 && size_of(Dtype::i32) == 4));
  CHECK(std::string(name(Dtype::bf16)) == "bf16");
  CHECK((is_float(Dtype::f16) && !is_float(Dtype::i32)));
  CHECK((std::is_same_v<Compute<bf16>, float> && std::is_same_v<Compute<double>, double>));
  CHECK((sizeof(bf16) == 2 && sizeof(f16) == 2 && dtype_of<bf16> == Dtype::bf16 &&
         dtype_of<int32_t> == Dtype::i32));
}

}  // namespace
