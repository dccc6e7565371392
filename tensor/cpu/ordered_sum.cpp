// Sums over ranks, in rank order: the bits do not depend on the chunk, on the number of elements or
// on the rank that computes them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/cpu_backend.h"

namespace zl {
namespace {

// [n] The sums of a strip stay in the L1 cache while every rank's values are added to them.
constexpr int64_t kStrip = 2048;

// Each function is one simple loop, so that the compiler vectorises it.
template <class T, class Sum>
void add_two(const T* __restrict a, const T* __restrict b, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = Sum(a[i]) + Sum(b[i]);
}
template <class T, class Sum>
void start(const T* __restrict a, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = Sum(a[i]);
}
template <class T, class Sum>
void add(const T* __restrict a, Sum* __restrict sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += Sum(a[i]);
}
template <class Sum>
void divide(Sum* sum, int64_t n, size_t by) {
  const Sum divisor = Sum(by), inverse = Sum(1) / divisor;
  // Multiplying by the inverse gives the same bits only if both scale by a power of 2.
  if (std::has_single_bit(by))
    for (int64_t i = 0; i < n; ++i) sum[i] *= inverse;
  else
    for (int64_t i = 0; i < n; ++i) sum[i] /= divisor;
}
template <class T, class Sum>
void round_to(const Sum* __restrict sum, T* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>)
      out[i] = T(sum[i]);
    else
      store(out[i], sum[i]);
  }
}

// The sum or mean of two ranks in one loop, into one or both of them. Storing no sums between loops
// makes it twice as fast as add_in_order up to 16 MB. Multiplying by 0.5 rounds as dividing by 2.
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
  using Sum = OrderedSumType<T>;
  alignas(64) Sum sum[kStrip];
  const auto& [buffers, results, begin, end, dtype, mean, added, continues, unfinished] = what;
  const size_t values = added > 0 ? size_t(added) : buffers.size();
  if constexpr (std::is_same_v<T, Sum>) {
    if (buffers.size() == 2 && results.size() <= 2 && values == 2) return add_pair<T>(what);
  }
  const auto at = [](char* buffer, int64_t i) { return reinterpret_cast<T*>(buffer) + i; };
  const auto sums_at = [](char* buffer, int64_t i) { return reinterpret_cast<Sum*>(buffer) + i; };
  for (int64_t i = begin; i < end; i += kStrip) {
    const int64_t n = std::min(kStrip, end - i);
    if (continues)
      std::copy_n(sums_at(buffers[0], i), n, sum);
    else if (buffers.size() > 1)
      add_two(at(buffers[0], i), at(buffers[1], i), sum, n);
    else
      start(at(buffers[0], i), sum, n);
    for (size_t r = continues ? 1 : 2; r < buffers.size(); ++r) add(at(buffers[r], i), sum, n);
    if (mean) divide(sum, n, values);
    if (unfinished) {
      for (char* result : results) std::copy_n(sum, n, sums_at(result, i));
      continue;
    }
    round_to(sum, at(results[0], i), n);
    for (size_t r = 1; r < results.size(); ++r)
      std::memcpy(at(results[r], i), at(results[0], i), size_t(n) * sizeof(T));
  }
}

}  // namespace

void CpuBackend::ordered_sum(const OrderedSum& what) {
  if (what.buffers.size() < 2 && what.added < 2)
    return;  // the sum and the mean of one value are the value, which is in place
  if (what.dtype == Dtype::i32) return add_in_order<int32_t>(what);
  for_float_type(what.dtype, [&](auto type) { add_in_order<decltype(type)>(what); });
}

}  // namespace zl
