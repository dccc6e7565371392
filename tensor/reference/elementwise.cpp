// Fills, casts and sums, element by element.
//
// A tensor of type T is stored in T and computed in F = Compute<T>: fp32, or fp64 for f64. A kernel
// converts what it reads to F, computes there, and rounds once, when it writes: T(F). bf16 and f16
// round to nearest even (tensor/dtype.h).
#include "tensor/backend.h"
#include "tensor/random.h"

namespace zl {

void Backend::fill(double value, const Tensor& out) {
  if (out.dtype() == Dtype::i32) {
    for (int32_t& element : out.data<int32_t>()) element = int32_t(value);
    return;
  }
  for_float_type(out.dtype(), [&]<class T>(T) {
    for (T& element : out.data<T>()) element = T(Compute<T>(value));
  });
}

// Tensors of one type may be overlapping ranges of one storage.
void Backend::copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype()) return move_bytes(from.address(), to.address(), to.bytes());
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(to.dtype(), [&]<class T>(T) {
      const auto x = from.data<S>();
      const auto y = to.data<T>();
      for (size_t i = 0; i < y.size(); ++i) y[i] = T(Compute<T>(Compute<S>(x[i])));
    });
  });
}

// Element i is number first + i of the stream: Box & Muller 1958 on Philox's bits
// (tensor/random.h).
void Backend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
                     const Tensor& out) {
  const PhiloxStream numbers{seed, stream};
  for_float_type(out.dtype(), [&]<class T>(T) {
    uint64_t index = uint64_t(first);
    for (T& element : out.data<T>())
      element = T(Compute<T>(mean + deviation * numbers.normal(index++)));
  });
}

void Backend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const auto left = a.data<T>(), right = b.data<T>(), sum = y.data<T>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = T(F(left[i]) + F(right[i]));
  });
}

void Backend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(into.dtype(), [&]<class T>(T) {
      using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
      const auto x = from.data<S>();
      const auto y = into.data<T>();
      for (size_t i = 0; i < y.size(); ++i) y[i] = T(Compute<T>(F(y[i]) + F(x[i])));
    });
  });
}

}  // namespace zl
