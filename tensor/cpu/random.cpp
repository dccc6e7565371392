// Normal numbers of a counter-based stream: element i of a parameter is number i of its stream,
// whichever range of the parameter is filled.
#include "tensor/random.h"

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"

namespace zl {
void CpuBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean,
                        double deviation, const Tensor& out) {
  for_float_type(out.dtype(), [&]<class T>(T) {
    const PhiloxStream numbers{seed, stream};
    const auto store = [&](T& element, double z) { element = T(Compute<T>(mean + deviation * z)); };
    T* y = out.data<T>().data();
    constexpr int64_t kNumbers = 256;  // grain: each number takes a logarithm, a root and a sine
    in_parallel(out.numel(), kNumbers, [=](int64_t i, int64_t end) {
      if (i < end && (first + i) % 2) {
        store(y[i], numbers.normal_pair(uint64_t(first + i) / 2)[1]);
        ++i;
      }
      for (; i < end; i += 2) {
        const auto [even, odd] = numbers.normal_pair(uint64_t(first + i) / 2);
        store(y[i], even);
        if (i + 1 < end) store(y[i + 1], odd);
      }
    });
  });
}

}  // namespace zl
