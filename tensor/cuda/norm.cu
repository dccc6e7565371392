// The sums of squares of gradients, for their norms, with the bits of cpu/norm.cpp. Compiled with
// --fmad=false, because the CPU rounds a square before it adds it.
//
// The CPU adds blocks of 1,024 as a balanced binary tree, whose missing leaves are 0. 16
// consecutive blocks are a subtree. Each block of threads adds one subtree, and a second kernel
// adds the tree above them. Missing leaves change no bit. One launch does this for many tensors:
// most parameters are so small that a launch would take longer than their sum.
#include "tensor/cuda/launch.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// As in cpu/norm.cpp: element i of a block is added to lane i % 16.
constexpr int kLanes = 16, kBlock = 1024;
constexpr int kWarps = kThreads / kWarp;
static_assert(kThreads * (kBlock / kLanes) == kSquaresPerSum, "one thread per lane");

// The sum of the squares of one lane, in order.
template <class T>
__device__ double sum_lane(int64_t n, const T* x, int64_t first, int64_t end) {
  double sum = 0;
  for (int64_t i = first; i < (end < n ? end : n); i += kLanes) {
    const double value = double(Compute<T>(x[i]));
    sum += value * value;
  }
  return sum;
}

// The sum of each block: its lanes are added as the CPU does.
template <class T>
__global__ void blocks_kernel(int64_t n, const T* x, double* sums) {
  const int64_t block = first_element() / kLanes, lane = threadIdx.x % kLanes;
  double sum = sum_lane(n, x, block * kBlock + lane, (block + 1) * kBlock);
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (lane == 0 && block * kBlock < n) sums[block] = sum;
}

// Tensors whose sums one launch computes. It is a kernel's parameter, whose size CUDA limits.
struct Tensors {
  static constexpr int kMost = 64;
  const void* x[kMost];
  int64_t n[kMost];
  int64_t part[kMost + 1];  // the first of each tensor's parts; at last, the number of all
};

// Adds lanes as the CPU does, then neighbouring blocks, then their sums, pair by pair. One block of
// threads per part.
template <class T>
__global__ void squares_kernel(Tensors tensors, double* sums) {
  __shared__ double of_warp[kWarps];
  int t = 0;
  while (tensors.part[t + 1] <= blockIdx.x) ++t;
  const int64_t first = (blockIdx.x - tensors.part[t]) * kThreads + threadIdx.x;
  const int64_t block = first / kLanes, lane = threadIdx.x % kLanes;
  double sum = sum_lane(tensors.n[t], static_cast<const T*>(tensors.x[t]), block * kBlock + lane,
                        (block + 1) * kBlock);
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  sum += __shfl_xor_sync(0xffffffffu, sum, kLanes);  // the two blocks of a warp
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int width = 1; width < kWarps; width *= 2)
    for (int w = 0; w < kWarps; w += 2 * width) of_warp[w] += of_warp[w + width];
  sums[blockIdx.x] = of_warp[0];
}

// The same tree over all parts of a tensor, in place. One block per tensor.
__global__ void tree_kernel(Tensors tensors, double* all_sums, double* out) {
  double* const sums = all_sums + tensors.part[blockIdx.x];
  const int64_t n = tensors.part[blockIdx.x + 1] - tensors.part[blockIdx.x];
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t i = threadIdx.x * 2 * width; i + width < n; i += kThreads * 2 * width)
      sums[i] += sums[i + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = n > 0 ? sums[0] : 0;
}

}  // namespace

void CudaBackend::sums_of_squares(std::span<const Tensor> xs, const Tensor& out,
                                  const Tensor& workspace) {
  double *sums = elements<double>(workspace), *to = elements<double>(out);
  while (!xs.empty()) {
    const size_t count = std::min<size_t>(xs.size(), Tensors::kMost);
    Tensors tensors{};
    for (size_t t = 0; t < count; ++t) {
      tensors.x[t] = device_address(xs[t].address());
      tensors.n[t] = xs[t].numel();
      tensors.part[t + 1] = tensors.part[t] + parts_of_squares(xs[t].numel());
    }
    const int64_t parts = tensors.part[count];
    for_float_type(xs[0].dtype(), [&]<class T>(T) {
      launch(*this, squares_kernel<T>, parts, kThreads, tensors, sums);
    });
    launch(*this, tree_kernel, int64_t(count), kThreads, tensors, sums, to);
    xs = xs.subspan(count), sums += parts, to += count;
  }
}

void CudaBackend::squares_of_blocks(const Tensor& x, const Tensor& out) {
  const int64_t n = x.numel();
  if (n == 0) return;
  for_float_type(x.dtype(), [&]<class T>(T) {
    launch(*this, blocks_kernel<T>, parts_of_squares(n), kThreads, n, elements<T>(x),
           elements<double>(out));
  });
}

}  // namespace zl::ZEROLAB_CUDA
