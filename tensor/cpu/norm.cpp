// The sum of squares of a gradient, for its norm. All stages add in the same order.
#include <algorithm>

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

// Calls `see` with the sum of squares of each block, in order. A shorter last block gives the bits
// of one that is filled with zeros.
template <class See>
void for_each_block(const Tensor& x, const See& see) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    const T* px = x.data<T>().data();
    const int64_t n = x.numel();
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const T* block = px + begin;
      see(sum_lanes(std::min(kBlock, n - begin), [block](int64_t i) {
        const double value = double(Compute<T>(block[i]));
        return value * value;
      }));
    }
  });
}

}  // namespace

void CpuBackend::sum_of_squares(const Tensor& x, const Tensor& out, const Tensor&) {
  PairwiseSum sum;
  for_each_block(x, [&](double block) { sum.add(block); });
  out.data<double>()[0] = sum.total();
}

void CpuBackend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  double* next = out.data<double>().data();
  for_each_block(x, [&](double block) { *next++ = block; });
}

}  // namespace zl
