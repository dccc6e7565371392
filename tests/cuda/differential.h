// Compares the kernels of tensor/cuda with those of tensor/reference on the same values.
#pragma once

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/backend.h"
#include "tensor/random.h"
#include "tests/device.h"
#include "tests/pairwise.h"

namespace zl::test {

// One side: a memory on one of the two backends, and tensors from values in double.
struct Side {
  explicit Side(Backend& b)
      : memory({b.host_addressable() ? DeviceKind::cpu : DeviceKind::cuda}, b, events, {}) {}

  Tensor of(const std::vector<double>& values, Shape shape, Dtype dtype) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), dtype);
    for_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      std::vector<T> typed(values.size());
      std::ranges::transform(values, typed.begin(), [](double v) { return T(Compute<T>(v)); });
      memory.backend().upload(typed.data(), t);
    });
    return t;
  }
  Tensor of(const std::vector<int32_t>& values, Shape shape) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), Dtype::i32);
    memory.backend().upload(values.data(), t);
    return t;
  }
  // Full of NaN, for outputs that a kernel must write.
  Tensor nan(Shape shape, Dtype dtype) {
    const std::vector<double> values(size_t(numel(shape)),
                                     std::numeric_limits<double>::quiet_NaN());
    return of(values, std::move(shape), dtype);
  }

  EventStream events;
  Memory memory;
};

inline std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values(size_t(t.numel()));
  for_float_type(t.dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<T> typed(values.size());
    t.backend().download(t, typed.data());
    std::ranges::transform(typed, values.begin(), [](T v) { return double(Compute<T>(v)); });
  });
  return values;
}

inline std::vector<double> values_of(
    std::initializer_list<Tensor> tensors) {  // those that are defined
  std::vector<double> all;
  for (const Tensor& t : tensors)
    if (t.defined())
      for (const double v : values_of(t)) all.push_back(v);
  return all;
}

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// The largest |a - b| / (1 + |b|); infinite if either is not a number or the sizes differ.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    if (!(d <= largest)) largest = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return largest;
}

// Normal numbers, different for each stream.
inline std::vector<double> random_values(int64_t n, uint64_t stream, double scale = 1) {
  std::vector<double> values(static_cast<size_t>(n));
  const PhiloxStream random{20261121, stream};
  for (int64_t i = 0; i < n; ++i)
    values[size_t(i)] = scale * random.normal_pair(uint64_t(i / 2))[size_t(i % 2)];
  return values;
}

// The tolerance: a few units in the last place of the storage type, or of the compute type if that
// is coarser.
inline double tolerance(Dtype dtype) {
  return dtype == Dtype::f64   ? 1e-12
         : dtype == Dtype::f32 ? 1e-5
         : dtype == Dtype::f16 ? 2e-3
                               : 1.6e-2;
}

// Half of it: for kernels whose order of additions differs, and that round once at the end.
inline double one_rounding(Dtype dtype) { return tolerance(dtype) / 2; }

constexpr Dtype kFloatTypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64};

// Runs the test once with each of them.
inline Dtype any_float_type() { return GENERATE(from_range(kFloatTypes)); }
inline Dtype next_float_type(SettingsRow& pick) {
  return pick.next({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64});
}

// Calls the kernel layer on both sides: body(side) returns the values to compare.
template <class Body>
auto on_both(Body body) {
  Side cpu(reference_backend()), gpu(test_gpu());
  return std::pair{body(cpu), body(gpu)};
}

}  // namespace zl::test
