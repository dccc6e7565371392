// Fills and sums, element by element. Copies, casts and what adds to a tensor: transfer.cpp.
//
// A tensor of type T is stored in T and computed in F = Compute<T>: fp32, or fp64 for f64. A kernel
// converts what it reads to F, computes there, and rounds once, when it writes: T(F). bf16 and f16
// round to nearest even (tensor/dtype.h).
#include "tensor/random.h"
#include "tensor/reference/kernel_call.h"

namespace zl {

void kernel::fill(double value, const Tensor& out) {
  recorded("fill", out, 0, {&out}).fill(value, out);
}

void Backend::fill(double value, const Tensor& out) {
  if (out.dtype() == Dtype::i32) {
    for (int32_t& element : out.data<int32_t>()) element = int32_t(value);
    return;
  }
  for_float_type(out.dtype(), [&]<class T>(T) {
    for (T& element : out.data<T>()) element = T(Compute<T>(value));
  });
}

void kernel::normal(const NormalStream& s, int64_t first, const Tensor& out) {
  if (s.deviation == 0) return fill(s.mean, out);
  recorded("normal", out, 0, {&out}).normal(s.seed, s.stream, first, s.mean, s.deviation, out);
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

void kernel::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  require_same("add", a, {&b, &y});
  recorded("add", y, y.numel(), {&a, &b, &y}).add(a, b, y);
}

void Backend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const auto left = a.data<T>(), right = b.data<T>(), sum = y.data<T>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = T(F(left[i]) + F(right[i]));
  });
}

}  // namespace zl
