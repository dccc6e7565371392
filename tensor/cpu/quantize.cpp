// Block quantisation. The largest magnitude of a group does not depend on the order in which its
// elements are compared, so the CPU and the GPU have the same bits.
#include "tensor/reference/quantize.h"

#include <algorithm>
#include <bit>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"

namespace zl {
namespace {

// A magnitude's bits are ordered like the magnitude, with infinity and then NaN above all numbers.
float largest_magnitude(const float* x, int64_t n) {
  int32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

// Calls f(row, group of the row, first element of the group in it, elements) for every group.
template <class F>
void for_groups(const Tensor& x, F&& f) {
  const int64_t n = x.dim(-1), groups = (n + Quantized::kGroup - 1) / Quantized::kGroup;
  in_parallel(x.rows() * groups, kGrain / Quantized::kGroup, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % groups * Quantized::kGroup;
      f(i, i / groups * n + first, std::min(Quantized::kGroup, n - first));
    }
  });
}

}  // namespace

void CpuBackend::quantize(const Tensor& x, const Quantized& to) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    const T* px = x.data<T>().data();
    uint8_t* codes = to.codes.data<uint8_t>().data();
    float* scales = to.scales.data<float>().data();
    for_groups(x, [&](int64_t group, int64_t at, int64_t n) {
      float values[Quantized::kGroup];
      for (int64_t i = 0; i < n; ++i) values[i] = float(px[at + i]);
      const float scale = reference::scale_of(largest_magnitude(values, n), to.largest());
      scales[group] = scale;
      const auto code = [&](int64_t i) { return reference::code_of(values[i], scale); };
      if (to.bits == 8)
        for (int64_t i = 0; i < n; ++i) codes[at + i] = uint8_t(code(i));
      else  // two at a time: rows have an even number of elements
        for (int64_t i = 0; i < n; i += 2)
          codes[(at + i) / 2] = uint8_t((code(i) & 15) | (code(i + 1) << 4));
    });
  });
}

void CpuBackend::dequantize(const Quantized& from, const Tensor& x, Write write) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    T* px = x.data<T>().data();
    const uint8_t* codes = from.codes.data<uint8_t>().data();
    const float* scales = from.scales.data<float>().data();
    for_groups(x, [&](int64_t group, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const float value = float(reference::get_code(codes, at + i, from.bits)) * scales[group];
        store(px[at + i], write == Write::set ? Compute<T>(value) : Compute<T>(px[at + i]) + value);
      }
    });
  });
}

}  // namespace zl
