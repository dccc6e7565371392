// The sum of squares from which a gradient's norm is made, in one fixed order that all stages
// share.
#include <algorithm>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

constexpr int64_t kBlock = 1024;

// Adds numbers pairwise, as a balanced binary tree over them does, without knowing how many will
// come: `partial[k]` is the finished sum of 2^k numbers if bit k of `count` is set.
class PairwiseSum {
 public:
  void add(double value) {
    int level = 0;
    for (; count_ >> level & 1; ++level) value = partial_[level] + value;
    partial_[level] = value;
    ++count_;
  }
  // The value of the tree whose missing leaves are 0: so zeros at the end never change it.
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
  for_float_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* px = x.data<T>().data();
    const int64_t n = x.numel();
    PairwiseSum sum;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const T* block = px + begin;
      // A block that is not full counts as filled up with zeros: adding them to a lane changes no
      // bit.
      sum.add(sum_lanes(std::min(kBlock, n - begin), [block](int64_t i) {
        const double value = double(Compute<T>(block[i]));
        return value * value;
      }));
    }
    out.data<double>()[0] = sum.total();
  });
}

}  // namespace zl
