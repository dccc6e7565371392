// Normal numbers of a counter-based stream: element i of a parameter is number i of its stream,
// whichever range of the parameter is filled.
//
// The random bits are the CPU's. Logarithm, cosine and sine are CUDA's in double, which may differ
// from the CPU's in the last bit or two; after rounding to fp32 or less, very few numbers differ.
// Two GPUs agree in every bit.
#include "tensor/cuda/launch.h"
#include "tensor/random.h"

namespace zl::ZEROLAB_CUDA {
namespace {

struct Normal {
  PhiloxStream numbers;
  int64_t first;  // the number of element 0
  double mean, deviation;
};

// One thread per pair of numbers, which come from one block of random bits. Only one number of the
// first and of the last pair may be needed.
template <class T>
__global__ void normal_kernel(int64_t n, Normal k, T* y) {
  const int64_t pair = k.first / 2 + first_element();
  const auto numbers = k.numbers.normal_pair(uint64_t(pair));
  for (int odd = 0; odd < 2; ++odd) {
    const int64_t i = 2 * pair + odd - k.first;
    if (i >= 0 && i < n) y[i] = T(Compute<T>(k.mean + k.deviation * numbers[odd]));
  }
}

}  // namespace

void CudaBackend::normal(uint64_t seed, uint64_t stream, int64_t first, double mean,
                         double deviation, const Tensor& out) {
  const int64_t n = out.numel(), pairs = n == 0 ? 0 : (first + n + 1) / 2 - first / 2;
  for_float_type(out.dtype(), [&]<class T>(T) {
    launch(*this, normal_kernel<T>, blocks_for(pairs), kThreads, n,
           Normal{{seed, stream}, first, mean, deviation}, elements<T>(out));
  });
}

}  // namespace zl::ZEROLAB_CUDA
