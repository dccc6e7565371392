// Adding the ranks' values: in rank order, whatever the chunk, the count or who does it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/cpu_backend.h"

namespace zl {
namespace {

constexpr int64_t kStrip =
    2048;  // [n] stays in the L1 cache while every rank's values are added to it

template <class T>
struct SumOf {
  using type = Compute<T>;
};
template <>
struct SumOf<int32_t> {
  using type = uint32_t;
};  // wraps around instead of being undefined

template <class Sum, class T>
Sum widen(const T& value) {
  return Sum(value);
}
template <class Sum, class T>
void narrow(Sum sum, T& out) {
  out = T(sum);
}

// A choice between integers that is no branch, not even after optimisation.
int32_t choose(bool first, int32_t a, int32_t b) {
  const int32_t mask = -int32_t(first);
  return (a & mask) | (b & ~mask);
}

// The conversions of f16 in tensor/dtype.h, without branches so that loops vectorise.
template <>
float widen<float>(const f16& value) {
  const int32_t magnitude = (value.bits & 0x7fff) << 13, exponent = magnitude & 0x0f800000;
  const int32_t normal = magnitude + 0x38000000;  // the exponent counts from 127 instead of 15
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(normal + 0x00800000) - 0x1p-14f);
  const int32_t finite = choose(exponent == 0, subnormal, normal);
  const int32_t bits = choose(exponent == 0x0f800000, normal + 0x38000000, finite);
  return std::bit_cast<float>(bits | (value.bits & 0x8000) << 16);
}
template <>
void narrow(float sum, f16& out) {
  const auto bits = std::bit_cast<int32_t>(sum);
  const int32_t magnitude = bits & 0x7fffffff;
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  const int32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const int32_t finite = choose(magnitude < 0x38800000, subnormal, normal);
  const int32_t number = choose(magnitude >= 0x47800000, 0x7c00, finite);
  const int32_t half = choose(magnitude > 0x7f800000, 0x7e00 | (magnitude >> 13 & 0x3ff), number);
  out.bits = uint16_t(half | (bits >> 16 & 0x8000));
}

// Each function is one simple loop, so that the compiler vectorises it.
template <class T, class Sum>
void add_two(const T* __restrict a, const T* __restrict b, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = widen<Sum>(a[i]) + widen<Sum>(b[i]);
}
template <class T, class Sum>
void start(const T* __restrict a, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = widen<Sum>(a[i]);
}
template <class T, class Sum>
void add(const T* __restrict a, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += widen<Sum>(a[i]);
}
template <class Sum>
void divide(Sum* sum, int64_t n, size_t by) {
  const Sum divisor = Sum(by), inverse = Sum(1) / divisor;
  if (std::has_single_bit(
          by))  // the only case in which a product is the same: both scale by a power of 2
    for (int64_t i = 0; i < n; ++i) sum[i] *= inverse;
  else
    for (int64_t i = 0; i < n; ++i) sum[i] /= divisor;
}
template <class T, class Sum>
void store(const Sum* __restrict sum, T* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) narrow(sum[i], out[i]);
}

// Two ranks' sum or mean in one sweep, into one or both of them: no sums are stored between two
// loops. Twice as fast as the general way up to 16 MB. A product with 0.5 rounds as the division by
// 2 does.
template <class T>
void add_pair(const OrderedSum& what) {
  const auto at = [](char* buffer) { return reinterpret_cast<T*>(buffer); };
  const T *a = at(what.buffers[0]), *b = at(what.buffers[1]), scale = what.mean ? T(0.5) : T(1);
  T *first = at(what.results[0]), *last = at(what.results.back());
#pragma omp simd
  for (int64_t i = what.begin; i < what.end; ++i) first[i] = last[i] = (a[i] + b[i]) * scale;
}

template <class T>
void add_in_order(const OrderedSum& what) {
  using Sum = typename SumOf<T>::type;
  alignas(64) Sum sum[kStrip];
  const auto& [buffers, results, begin, end, dtype, mean, added] = what;
  const size_t values = added > 0 ? size_t(added) : buffers.size();
  if constexpr (std::is_same_v<T, Sum>) {
    if (buffers.size() == 2 && results.size() <= 2 && values == 2) return add_pair<T>(what);
  }
  const auto at = [](char* buffer, int64_t i) { return reinterpret_cast<T*>(buffer) + i; };
  for (int64_t i = begin; i < end; i += kStrip) {
    const int64_t n = std::min(kStrip, end - i);
    if (buffers.size() > 1)
      add_two(at(buffers[0], i), at(buffers[1], i), sum, n);
    else
      start(at(buffers[0], i), sum, n);
    for (size_t r = 2; r < buffers.size(); ++r) add(at(buffers[r], i), sum, n);
    if (mean) divide(sum, n, values);
    store(sum, at(results[0], i), n);
    for (size_t r = 1; r < results.size(); ++r)
      std::memcpy(at(results[r], i), at(results[0], i), size_t(n) * sizeof(T));
  }
}

}  // namespace

void CpuBackend::ordered_sum(const OrderedSum& what) {
  if (what.buffers.size() < 2 && what.added < 2)
    return;  // the sum and the mean of one are itself, and it is in place
  if (what.dtype == Dtype::i32) return add_in_order<int32_t>(what);
  for_float_type(what.dtype, [&](auto type) { add_in_order<decltype(type)>(what); });
}

}  // namespace zl
