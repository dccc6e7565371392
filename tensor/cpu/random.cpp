// Normal numbers of a counter-based stream: element i of a parameter is number i of its stream,
// whichever range of the parameter is filled.
#include "tensor/random.h"

#include "tensor/cpu/cpu_backend.h"

namespace zl {
void CpuBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean,
                        double deviation, const Tensor& out) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const PhiloxStream numbers{seed, stream};
    const auto store = [&](T& element, double z) { element = T(F(mean + deviation * z)); };
    T* y = out.data<T>().data();
    const int64_t n = out.numel();
    int64_t i = 0;
    if (n > 0 && first % 2) store(y[i++], numbers.normal_pair(uint64_t(first) / 2)[1]);
    for (; i < n; i += 2) {
      const auto [even, odd] = numbers.normal_pair(uint64_t(first + i) / 2);
      store(y[i], even);
      if (i + 1 < n) store(y[i + 1], odd);
    }
  });
}

}  // namespace zl
