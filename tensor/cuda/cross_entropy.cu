// Mean cross-entropy of rows of logits, one block per row. Backward computes each row's maximum and
// sum again: that is cheaper than a second tensor as large as the logits.
//
// A GPU cannot throw: a target outside the vocabulary makes loss and gradient NaN. One in the
// padding of the rows makes the loss infinite.
#include <limits>

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// The largest of some numbers, and the sum of e^(x - maximum) over them: in one pass, as in Milakov
// & Gimelshein 2018 (arXiv:1805.02867), algorithm 3. The sum is NaN if a number is NaN or
// +infinity.
template <class F>
struct Denominator {
  F maximum = -std::numeric_limits<F>::infinity(), sum = 0;

  template <class T, int kCount>
  __device__ void add(const Pack<T, kCount>& x) {
    F larger = maximum;
    for (int j = 0; j < kCount; ++j) larger = F(x.at[j]) > larger ? F(x.at[j]) : larger;
    if (larger > maximum) sum *= exp(maximum - larger);
    maximum = larger;
    // Numbers that are all -infinity add 0 to the sum of other threads.
    const F shift = maximum == -std::numeric_limits<F>::infinity() ? F(0) : maximum;
    for (int j = 0; j < kCount; ++j) sum += exp(F(x.at[j]) - shift);
  }
};

// Calls f(i, pack) for the elements of a row, each on one thread of the block. The first and the
// last elements come in packs of 1, the others in aligned packs.
template <int kPack, class T, class Visit>
__device__ void for_packs_of_row(const T* x, int64_t V, Visit visit) {
  const int64_t to_boundary = int64_t(-reinterpret_cast<uintptr_t>(x) % 16 / sizeof(T)),
                head = to_boundary < V ? to_boundary : V, packs = (V - head) / kPack;
  if (threadIdx.x < head) visit(threadIdx.x, Pack<T, 1>{{x[threadIdx.x]}});
  for (int64_t p = threadIdx.x; p < packs; p += kThreads)
    visit(head + p * kPack, load_pack<kPack>(x + head + p * kPack));
  const int64_t last = head + packs * kPack + threadIdx.x;
  if (last < V) visit(last, Pack<T, 1>{{x[last]}});
}

// One row of logits. The denominator of its softmax is `sum` times e^maximum.
template <class T>
struct Row {
  using F = Compute<T>;
  const T* x;
  int64_t V, target;
  F maximum, sum;
  __device__ bool valid() const { return target >= 0 && target < V; }
};

// The row of this block, on all its threads.
template <class T>
__device__ Row<T> row_of_block(const T* logits, const int32_t* targets, int64_t V) {
  using F = Compute<T>;
  const T* x = logits + blockIdx.x * V;
  Denominator<F> mine;
  for_packs_of_row<pack_of<T>()>(x, V, [&](int64_t, const auto& pack) { mine.add(pack); });
  const F maximum = block_max(mine.maximum);
  return {x, V, targets[blockIdx.x], maximum, block_sum(F(mine.sum * exp(mine.maximum - maximum)))};
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
  T* const dx = dlogits + blockIdx.x * V;
  // dlogits may be the logits: the sums above are complete, and each element has one thread.
  const auto write = [&]<int kCount>(int64_t at, Pack<T, kCount> pack) {
    for (int j = 0; j < kCount; ++j) {
      const F p = exp(F(pack.at[j]) - row.maximum) * inverse;
      pack.at[j] = T((at + j == row.target ? p - F(1) : p) * scale);
    }
    store_pack(pack, dx + at);
  };
  if ((reinterpret_cast<uintptr_t>(dx) - reinterpret_cast<uintptr_t>(row.x)) % 16 == 0)
    for_packs_of_row<pack_of<T>()>(row.x, V, write);
  else
    for_packs_of_row<1>(row.x, V, write);
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
