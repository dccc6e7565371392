// Block quantisation of tensors; quantize.h has the formulas.
#include "tensor/reference/quantize.h"

#include <algorithm>
#include <cmath>

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
          reference::scale_of(largest_magnitude(x.subspan(size_t(first), size_t(n))), to.largest());
      to.scales.data<float>()[size_t(group)] = scale;
      for (int64_t i = first; i < first + n; ++i)
        reference::put_code(reference::code_of(float(x[size_t(i)]), scale),
                            to.codes.data<uint8_t>().data(), i, to.bits);
    });
  });
}

void ReferenceBackend::dequantize(const Quantized& from, const Tensor& to, Write write) {
  for_float_type(to.dtype(), [&]<class T>(T) {
    T* const x = to.data<T>().data();
    for_groups(to, [&](int64_t group, int64_t first, int64_t n) {
      const float scale = from.scales.data<float>()[size_t(group)];
      for (int64_t i = first; i < first + n; ++i) {
        const float value =
            float(reference::get_code(from.codes.data<uint8_t>().data(), i, from.bits)) * scale;
        x[i] = T(write == Write::add ? Compute<T>(x[i]) + value : Compute<T>(value));
      }
    });
  });
}

}  // namespace zl
