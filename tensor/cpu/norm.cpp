// The sum of squares of a gradient, for its norm. All stages add in the same order.
#include <algorithm>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

constexpr int64_t kBlock = kernel::kSquaresBlock;

// Adds numbers pairwise, as a balanced binary tree over them, without knowing how many will follow:
// partial_[k] is the complete sum of 2^k numbers if bit k of count_ is set.
class PairwiseSum {
 public:
  void add(double value) {
    int level = 0;
    for (; count_ >> level & 1; ++level) value = partial_[level] + value;
    partial_[level] = value;
    ++count_;
  }
  // The value of the tree, whose missing leaves are 0. So zeros at the end do not change it.
  double total() const {
    double sum = 0;
    for (int level = 0; level < 64; ++level)
      if (count_ >> level & 1) sum = partial_[level] + sum;
    return sum;
  }

 private:
  double partial_[64] = {};
  uint64_t count_ = 0;
};

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

double sum_of_squares(const Tensor& x) {
  constexpr int64_t kAtOnce = 1024;  // [n] blocks: enough for many threads
  double sums[kAtOnce];
  PairwiseSum sum;
  const int64_t blocks = blocks_of(x);
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t last = std::min(blocks, first + kAtOnce);
    sum_blocks(x, first, last, sums);
    for (int64_t b = 0; b < last - first; ++b) sum.add(sums[b]);
  }
  return sum.total();
}

}  // namespace

void CpuBackend::sums_of_squares(std::span<const Tensor> xs, const Tensor& out, const Tensor&) {
  const std::span<double> sums = out.data<double>();
  for (size_t i = 0; i < xs.size(); ++i) sums[i] = sum_of_squares(xs[i]);
}

void CpuBackend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  sum_blocks(x, 0, blocks_of(x), out.data<double>().data());
}

}  // namespace zl
