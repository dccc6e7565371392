// Normal numbers of a counter-based stream: element i of a parameter is number i, whatever part of it is filled.
#include "tensor/random.h"

#include "tensor/cpu/cpu_backend.h"

namespace zl {
namespace {

struct Pair {
  double even, odd;
};

// Both numbers of one block: PhiloxStream::normal(2 * block) and (2 * block + 1), for the price of one logarithm.
Pair normal_pair(const PhiloxStream& stream, uint64_t block) {
  const auto w = stream.block(block);
  const double u = (double((uint64_t(w[0]) << 20) ^ (w[1] >> 12)) + 1.0) * 0x1p-52;
  const double angle = 2 * std::numbers::pi * (double(w[2]) * 0x1p-32);
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void CpuBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation, const Tensor& out) {
  for_float_type(out.dtype(), [&](auto type) {
    using T = decltype(type);
    using F = Compute<T>;
    const PhiloxStream numbers{seed, stream};
    const auto store = [&](T& element, double z) { element = T(F(mean + deviation * z)); };
    T* y = out.data<T>().data();
    const int64_t n = out.numel();
    int64_t i = 0;
    if (n > 0 && first % 2) store(y[i++], normal_pair(numbers, uint64_t(first) / 2).odd);
    for (; i < n; i += 2) {
      const auto [even, odd] = normal_pair(numbers, uint64_t(first + i) / 2);
      store(y[i], even);
      if (i + 1 < n) store(y[i + 1], odd);
    }
  });
}

}  // namespace zl
