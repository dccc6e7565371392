// The sum of squares of a gradient, for its norm. All stages add in the same order.
#include <algorithm>
#include <bit>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

constexpr int64_t kBlock = kernel::kSquaresBlock;

// The sums of squares of blocks [first, last). A shorter last block gives the bits of one that is
// filled with zeros.
void sum_blocks(const Tensor& x, int64_t first, int64_t last, double* sums) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    const T* px = x.data<T>().data();
    const int64_t n = x.numel();
    in_parallel(last - first, grain_of(kBlock), [=](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t at = (first + b) * kBlock;
        sums[b] = sum_lanes(std::min(kBlock, n - at), [block = px + at](int64_t i) {
          const double value = double(Compute<T>(block[i]));
          return value * value;
        });
      }
    });
  });
}

int64_t blocks_of(const Tensor& x) { return (x.numel() + kBlock - 1) / kBlock; }

// The sum over `leaves` blocks from `first` on, a power of 2: a binary tree, whose blocks beyond
// the end are 0.
double sum_tree(const Tensor& x, int64_t first, int64_t leaves) {
  constexpr int64_t kAtOnce = 1024;  // [n] blocks: enough for many threads
  const int64_t last = std::min(first + leaves, blocks_of(x));
  if (first >= last) return 0;
  if (leaves > kAtOnce)
    return sum_tree(x, first, leaves / 2) + sum_tree(x, first + leaves / 2, leaves / 2);
  double sums[kAtOnce] = {};
  sum_blocks(x, first, last, sums);
  for (; leaves > 1; leaves /= 2)
    for (int64_t i = 0; i < leaves / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

}  // namespace

void CpuBackend::sums_of_squares(std::span<const Tensor> xs, const Tensor& out, const Tensor&) {
  const std::span<double> sums = out.data<double>();
  for (size_t i = 0; i < xs.size(); ++i)
    sums[i] = sum_tree(xs[i], 0, int64_t(std::bit_ceil(uint64_t(blocks_of(xs[i])))));
}

void CpuBackend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  sum_blocks(x, 0, blocks_of(x), out.data<double>().data());
}

}  // namespace zl
