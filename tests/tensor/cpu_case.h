// Shared by the tests of kernels that run on the CPU, fast (tensor/cpu) or in their textbook form
// (tensor/reference): a memory, tensors from values, their values in double, equality of bits,
// guarded workspace.
#pragma once

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/cpu/cpu_backend.h"

namespace zl::test {

using Values = std::vector<double>;

inline constexpr Dtype kTypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64};
// Runs the test once with each of them.
inline Dtype any_type() { return GENERATE(from_range(kTypes)); }

// Runs the test once with each of the two.
inline Backend& any_host_backend() { return *GENERATE(&cpu_backend(), &reference_backend()); }

struct Cpu {
  explicit Cpu(Backend& b = cpu_backend()) : backend(b), memory(Device{}, b, events) {}
  Backend& backend;
  EventStream events;
  Memory memory;

  Tensor empty(Shape shape, Dtype dtype) {
    return Tensor::empty(memory, MemoryUse::activation, std::move(shape), dtype);
  }
  // Rounds the values to `dtype`. `offset` elements precede them in the storage.
  Tensor of(const Values& values, Shape shape, Dtype dtype, int64_t offset = 0) {
    const Tensor t =
        empty({offset + int64_t(values.size())}, dtype).slice(offset, std::move(shape));
    for_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      std::ranges::transform(values, t.data<T>().begin(),
                             [](double v) { return T(Compute<T>(v)); });
    });
    return t;
  }
  Tensor nan(Shape shape, Dtype dtype, int64_t offset = 0) {
    const Values values(size_t(numel(shape)), std::numeric_limits<double>::quiet_NaN());
    return of(values, std::move(shape), dtype, offset);
  }
};

inline Values doubles(const Tensor& t) {
  Values values(size_t(t.numel()));
  for_float_type(t.dtype(), [&](auto type) {
    using T = decltype(type);
    std::ranges::transform(t.data<T>(), values.begin(), [](T v) { return double(Compute<T>(v)); });
  });
  return values;
}

// Different numbers for different seeds, in [-1, 1).
inline Values random_values(int64_t n, uint64_t seed) {
  Values values(static_cast<size_t>(n));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = double(int64_t(state) >> 11) * 0x1p-52;
  }
  return values;
}

// The distance from 1 to the next number of the type.
inline double epsilon(Dtype dtype) {
  return dtype == Dtype::f64   ? 0x1p-52
         : dtype == Dtype::f32 ? 0x1p-23
         : dtype == Dtype::f16 ? 0x1p-10
                               : 0x1p-7;
}
// The same of the type in which kernels compute.
inline double compute_epsilon(Dtype dtype) { return dtype == Dtype::f64 ? 0x1p-52 : 0x1p-23; }
inline Dtype statistics_type(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

// max |a - b|; infinite if either holds a NaN or the sizes differ.
inline double largest_difference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= largest)) largest = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return largest;
}

inline double size_of_values(const Values& v) {
  double largest = 0;
  for (const double x : v) largest = std::max(largest, std::abs(x));
  return largest;
}

// NaN equals itself, and -0 differs from 0.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.address(), b.address(), size_t(a.bytes())) == 0);
}

// Exactly the workspace that the backend needs, full of NaN, followed by guard words.
class GuardedWorkspace {
 public:
  GuardedWorkspace(Cpu& cpu, KernelId kernel, std::vector<int64_t> dims, Dtype dtype) {
    const int64_t bytes = cpu.backend.workspace(kernel, dims, dtype);
    whole_ = cpu.nan({bytes / 4 + kGuards}, Dtype::f32);
    std::fill_n(guards(), kGuards, kGuard);
    if (bytes > 0) workspace_ = whole_.slice(0, {bytes / 4});
  }
  operator const Tensor&() const { return workspace_; }
  bool intact() const { return std::count(guards(), guards() + kGuards, kGuard) == kGuards; }

 private:
  static constexpr int64_t kGuards = 64;
  static constexpr float kGuard = 12345.0f;
  float* guards() const { return whole_.data<float>().data() + whole_.numel() - kGuards; }
  Tensor whole_, workspace_;
};

}  // namespace zl::test
