// Mean cross-entropy of R rows of logits x with V classes, and targets t: Goodfellow et al. 2016,
// Deep Learning, section 6.2.2.3.
//
//   loss = 1/R sum over rows of  -log p_t,   p = softmax(x):  p_v = exp(x_v) / sum_w exp(x_w)
//
// so each row adds log sum_w exp(x_w) - x_t. Its derivative by x_v is p_v, and one less for the
// target:
//
//   dx_v = dloss/R (p_v - [v = t])
//
// The largest logit is subtracted everywhere: that changes no p, and no exponential overflows.
// The losses of rows are added in fp64. A logit that is NaN or +infinity makes the row NaN.
#include <algorithm>
#include <cmath>

#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

int64_t checked_target(const Tensor& targets, int64_t row, int64_t V) {
  const int32_t target = targets.data<int32_t>()[size_t(row)];
  if (target < 0 || target >= V)
    refuse("cross_entropy: target ", target, " of row ", row, " is out of range for ", V,
           " classes");
  return target;
}

void require_loss(const char* what, const Tensor& logits, const Tensor& targets,
                  const Tensor& loss) {
  kernel::require_ids(what, targets);
  if (logits.rows() != targets.numel())
    refuse(what, ": logits ", to_string(logits.shape()), " and targets ",
           to_string(targets.shape()), " have different rows");
  kernel::require_is(what, "row statistics", loss, 1, compute_type(logits.dtype()));
}

template <class F>
struct Softmax {
  F largest, sum;  // sum of exp(x - largest)

  template <class T>
  Softmax(const T* x, int64_t V) : largest(x[0]), sum(0) {
    for (int64_t v = 1; v < V; ++v) largest = std::max(largest, F(x[v]));
    for (int64_t v = 0; v < V; ++v) sum += std::exp(F(x[v]) - largest);
  }
  F probability(F x) const { return std::exp(x - largest) / sum; }
  F loss(F x_target) const { return std::log(sum) - (x_target - largest); }
};

}  // namespace

void kernel::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss) {
  require_loss("cross_entropy", logits, targets, loss);
  recorded("cross_entropy", loss, 4 * logits.numel(), {&logits, &targets, &loss})
      .cross_entropy(logits, targets, loss,
                     workspace(KernelId::cross_entropy, {logits.rows()}, logits));
}

void Backend::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                            const Tensor&) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t R = targets.numel(), V = logits.dim(-1);
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) {
      const T* const x = logits.data<T>().data() + r * V;
      const int64_t target = checked_target(targets, r, V);
      sum += double(Softmax<F>(x, V).loss(F(x[target])));
    }
    loss.data<F>()[0] = F(sum / double(R));
  });
}

void kernel::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                    const Tensor& dloss, const Tensor& dlogits) {
  require_loss("cross_entropy_backward", logits, targets, dloss);
  require_same("cross_entropy_backward", logits, {&dlogits});
  recorded("cross_entropy_backward", dlogits, 6 * logits.numel(), {&logits, &targets, &dlogits})
      .cross_entropy_backward(logits, targets, dloss, dlogits);
}

void Backend::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                     const Tensor& dloss, const Tensor& dlogits) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t R = targets.numel(), V = logits.dim(-1);
    const F each = dloss.data<F>()[0] / F(R);
    for (int64_t r = 0; r < R; ++r) {
      const T* const x = logits.data<T>().data() + r * V;
      T* const dx = dlogits.data<T>().data() + r * V;  // may be x
      const int64_t target = checked_target(targets, r, V);
      const Softmax<F> softmax(x, V);
      for (int64_t v = 0; v < V; ++v)
        dx[v] = T(each * (softmax.probability(F(x[v])) - (v == target ? 1 : 0)));
    }
  });
}

}  // namespace zl
