// The sum of squares of a gradient, for its norm. All stages add in the same order.
#include <algorithm>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

constexpr int64_t kBlock = 1024;

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

}  // namespace

void CpuBackend::sum_of_squares(const Tensor& x, const Tensor& out, const Tensor&) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    const T* px = x.data<T>().data();
    const int64_t n = x.numel();
    PairwiseSum sum;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const T* block = px + begin;
      // A shorter block gives the bits of one that is filled with zeros.
      sum.add(sum_lanes(std::min(kBlock, n - begin), [block](int64_t i) {
        const double value = double(Compute<T>(block[i]));
        return value * value;
      }));
    }
    out.data<double>()[0] = sum.total();
  });
}

}  // namespace zl
