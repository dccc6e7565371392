// Mean cross-entropy of rows of logits. Backward computes each row's maximum and sum again: that is
// cheaper than a second tensor as large as the logits.
#include <algorithm>
#include <limits>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/vector_math.h"

namespace zl {
namespace {

int64_t checked_target(int32_t target, int64_t V, int64_t row) {
  require(target >= 0 && target < V, "cross_entropy: target ", target, " of row ", row,
          " is out of range for ", V, " classes");
  return target;
}

// The denominator of a row's softmax is sum * e^maximum. sum is NaN if a logit is NaN or +infinity.
template <class F>
struct RowStatistics {
  F maximum, sum;
};

template <class T, class F = Compute<T>>
RowStatistics<F> row_statistics(const T* x, int64_t V) {
  const F maximum =
      max_lanes(V, -std::numeric_limits<F>::infinity(), [x](int64_t i) { return F(x[i]); });
  return {maximum, sum_lanes(V, [x, maximum](int64_t i) { return exp_fast(F(x[i]) - maximum); })};
}

}  // namespace

void CpuBackend::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                               const Tensor&) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t V = logits.dim(-1);
    const auto target = targets.data<int32_t>();
    const T* px = logits.data<T>().data();
    constexpr int64_t kAtOnce = 512;  // [n] rows, whose losses are then added in order
    double losses[kAtOnce], total = 0;
    const int64_t R = int64_t(target.size());
    for (int64_t first = 0; first < R; first += kAtOnce) {
      const int64_t rows = std::min(kAtOnce, R - first);
      in_parallel(rows, grain_of(V), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* x = px + (first + r) * V;
          const int64_t t = checked_target(target[size_t(first + r)], V, first + r);
          const auto [maximum, sum] = row_statistics(x, V);
          // Subtracting the maximum from the target first keeps the digits of a loss near 0.
          losses[r] = double(std::log(sum) - (F(x[t]) - maximum));
        }
      });
      for (int64_t r = 0; r < rows; ++r) total += losses[r];
    }
    loss.data<F>()[0] = F(total / double(R));
  });
}

void CpuBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                        const Tensor& dloss, const Tensor& dlogits) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t V = logits.dim(-1);
    const auto target = targets.data<int32_t>();
    const F each = dloss.data<F>()[0] / F(target.size());
    const T* px = logits.data<T>().data();
    T* pdx = dlogits.data<T>().data();
    in_parallel(int64_t(target.size()), grain_of(V), [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = px + r * V;
        T* dx = pdx + r * V;
        const int64_t t = checked_target(target[size_t(r)], V, r);
        const auto [maximum_, sum] = row_statistics(x, V);
        const F maximum = maximum_, inverse = F(1) / sum, scale = each;  // local: in registers
        // Before the loop, which may overwrite x[t].
        const F at_target = (exp_fast(F(x[t]) - maximum) * inverse - F(1)) * scale;
#pragma omp simd
        for (int64_t i = 0; i < V; ++i) store(dx[i], exp_fast(F(x[i]) - maximum) * inverse * scale);
        store(dx[t], at_target);
      }
    });
  });
}

}  // namespace zl
