// Mean cross-entropy of rows of logits, one block per row. Backward computes each row's maximum and
// sum again: that is cheaper than a second tensor as large as the logits.
//
// A GPU cannot throw: a target outside the vocabulary makes loss and gradient NaN.
#include <limits>

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// One row of logits. The denominator of its softmax is `sum` times e^maximum.
template <class T>
struct Row {
  using F = Compute<T>;
  const T* x;
  int64_t V, target;
  F maximum, sum;
  __device__ bool valid() const { return target >= 0 && target < V; }
};

// The row of this block, on all its threads. sum is NaN if a logit is NaN or +infinity.
template <class T>
__device__ Row<T> row_of_block(const T* logits, const int32_t* targets, int64_t V) {
  using F = Compute<T>;
  const T* x = logits + blockIdx.x * V;
  F maximum = -std::numeric_limits<F>::infinity();
  for (int64_t i = threadIdx.x; i < V; i += kThreads)
    maximum = F(x[i]) > maximum ? F(x[i]) : maximum;
  maximum = block_max(maximum);
  F sum = 0;
  for (int64_t i = threadIdx.x; i < V; i += kThreads) sum += exp(F(x[i]) - maximum);
  return {x, V, targets[blockIdx.x], maximum, block_sum(sum)};
}

template <class T>
__global__ void row_losses_kernel(const T* logits, const int32_t* targets, int64_t V,
                                  Compute<T>* losses) {
  using F = Compute<T>;
  const Row<T> row = row_of_block(logits, targets, V);
  if (threadIdx.x > 0) return;
  // Subtracting the maximum from the target first keeps the digits of a loss near 0.
  losses[blockIdx.x] = row.valid() ? log(row.sum) - (F(row.x[row.target]) - row.maximum)
                                   : std::numeric_limits<F>::quiet_NaN();
}

// One block. Thread i adds every kThreads-th row from row i.
template <class F>
__global__ void mean_kernel(int64_t R, const F* losses, F* mean) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < R; r += kThreads) sum += double(losses[r]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *mean = F(sum / double(R));
}

template <class T>
__global__ void backward_kernel(const T* logits, const int32_t* targets, int64_t R, int64_t V,
                                const Compute<T>* dloss, T* dlogits) {
  using F = Compute<T>;
  const Row<T> row = row_of_block(logits, targets, V);
  const F inverse = F(1) / row.sum,
          scale = row.valid() ? *dloss / F(R) : std::numeric_limits<F>::quiet_NaN();
  // dlogits may be the logits: the sums above are complete, and each element has one thread.
  for (int64_t i = threadIdx.x; i < V; i += kThreads) {
    const F p = exp(F(row.x[i]) - row.maximum) * inverse;
    dlogits[blockIdx.x * V + i] = T((i == row.target ? p - F(1) : p) * scale);
  }
}

}  // namespace

void CudaBackend::cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& loss,
                                const Tensor& workspace) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t V = logits.dim(-1), R = targets.numel();
    F* losses = R > 0 ? elements<F>(workspace) : nullptr;
    launch(*this, row_losses_kernel<T>, R, kThreads, elements<T>(logits),
           elements<int32_t>(targets), V, losses);
    launch(*this, mean_kernel<F>, 1, kThreads, R, losses, elements<F>(loss));
  });
}

void CudaBackend::cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                         const Tensor& dloss, const Tensor& dlogits) {
  for_float_type(logits.dtype(), [&]<class T>(T) {
    const int64_t V = logits.dim(-1), R = targets.numel();
    launch(*this, backward_kernel<T>, R, kThreads, elements<T>(logits), elements<int32_t>(targets),
           R, V, elements<Compute<T>>(dloss), elements<T>(dlogits));
  });
}

}  // namespace zl::ZEROLAB_CUDA
