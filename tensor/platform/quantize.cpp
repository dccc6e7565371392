#include "tensor/platform/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zl {
namespace {

// max |x| / steps; NaN if an element is NaN.
template <class T>
float scale_of(std::span<const T> x, int steps) {
  float largest = 0;
  for (const T element : x) {
    const float magnitude = std::abs(float(element));
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
    if (std::isnan(largest)) return largest;
  }
  if (largest == 0) return 0;
  const float scale = largest / float(steps);
  return scale < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : scale;
}

int code_of(float x, float scale) {
  if (!std::isfinite(scale)) return 1;
  return scale == 0 ? 0 : int(std::nearbyint(x / scale));
}

// Element i of all codes. With 4 bits, an even i is in the low half of its byte, and is put first.
void put_code(int code, uint8_t* codes, int64_t i, int bits) {
  if (bits == 8)
    codes[i] = uint8_t(code);
  else if (i % 2 == 0)
    codes[i / 2] = uint8_t(code & 15);
  else
    codes[i / 2] |= uint8_t(code << 4);
}

int get_code(const uint8_t* codes, int64_t i, int bits) {
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

class OnHost final : public QuantizeKernels {
 public:
  void quantize(const Tensor& from, const Quantized& to) override {
    if (!from.backend().holds_data()) return;
    for_float_type(from.dtype(), [&]<class T>(T) {
      const std::span<const T> x = from.data<T>();
      uint8_t* const codes = to.codes.data<uint8_t>().data();
      for_groups(from, [&](int64_t group, int64_t first, int64_t n) {
        const float scale = scale_of(x.subspan(size_t(first), size_t(n)), to.largest());
        to.scales.data<float>()[size_t(group)] = scale;
        for (int64_t i = first; i < first + n; ++i)
          put_code(code_of(float(x[size_t(i)]), scale), codes, i, to.bits);
      });
    });
  }

  void dequantize(const Quantized& from, const Tensor& to, Write write) override {
    if (!to.backend().holds_data()) return;
    for_float_type(to.dtype(), [&]<class T>(T) {
      T* const x = to.data<T>().data();
      const uint8_t* const codes = from.codes.data<uint8_t>().data();
      for_groups(to, [&](int64_t group, int64_t first, int64_t n) {
        const float scale = from.scales.data<float>()[size_t(group)];
        for (int64_t i = first; i < first + n; ++i) {
          const float value = float(get_code(codes, i, from.bits)) * scale;
          x[i] = T(write == Write::add ? Compute<T>(x[i]) + value : Compute<T>(value));
        }
      });
    });
  }

  void divide(double divisor, const Tensor& x) override {
    if (!x.backend().holds_data()) return;
    for_float_type(x.dtype(), [&]<class T>(T) {
      using F = Compute<T>;
      for (T& element : x.data<T>()) element = T(F(element) / F(divisor));
    });
  }
};

void require_quantized(const char* what, const Quantized& q, const Tensor& x) {
  const int64_t rows = x.rows(), n = x.dim(-1),
                groups = (n + Quantized::kGroup - 1) / Quantized::kGroup;
  require((q.bits == 8 || q.bits == 4) && n % 2 == 0, what, ": rows of ", n, " elements in ",
          q.bits, " bits; rows are even, and bits 8 or 4");
  if (q.codes.dtype() != Dtype::u8 || q.codes.numel() != rows * n * q.bits / 8 ||
      q.scales.dtype() != Dtype::f32 || q.scales.numel() != rows * groups)
    refuse(what, ": ", to_string(x.shape()), " elements need ", rows * n * q.bits / 8,
           " u8 codes and ", rows * groups, " f32 scales, not ", q.codes.numel(), " ",
           name(q.codes.dtype()), " and ", q.scales.numel(), " ", name(q.scales.dtype()));
}

// Of both kernels: they touch the same elements.
void record(const char* what, const Tensor& out, const Quantized& q, const Tensor& x, int each) {
  out.memory().append_kernel(what, x.bytes() + q.codes.bytes() + q.scales.bytes(),
                             each * x.numel());
}

}  // namespace

QuantizeKernels& quantize_kernels(Backend& backend) {
  static OnHost on_host;
  auto* const own = dynamic_cast<QuantizeKernels*>(&backend);
  return own ? *own : on_host;
}

void kernel::quantize(const Tensor& x, const Quantized& to) {
  require_quantized("quantize", to, x);
  record("quantize", to.codes, to, x, 3);
  quantize_kernels(to.codes.backend()).quantize(x, to);
}

void kernel::dequantize(const Quantized& from, const Tensor& x, Write write) {
  require_quantized("dequantize", from, x);
  record("dequantize", x, from, x, 1);
  quantize_kernels(x.backend()).dequantize(from, x, write);
}

void kernel::divide(double divisor, const Tensor& x) {
  x.memory().append_kernel("divide", x.bytes(), x.numel());
  quantize_kernels(x.backend()).divide(divisor, x);
}

}  // namespace zl
