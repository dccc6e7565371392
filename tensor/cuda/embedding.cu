// Token and position tables. Gradients are added to the table in the order of the rows.
//
// One thread adds all contributions to an element of a table, in the order of the CPU's loop. So
// the bits are the CPU's, in every type and on any grid.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// The arguments of both kernels of a token table (V, C).
template <class T>
struct Lookup {
  int64_t R, V, C;
  const int32_t* ids;  // (R)
  const T* from;       // forward: the table; backward: the gradients (R, C)
  T* to;               // forward: (R, C); backward: the table's gradient
};

// One block per row. A kernel cannot throw: an id outside the table reads nothing and gives a row
// of NaN, so that the loss is NaN.
template <class T>
__global__ void embedding_kernel(Lookup<T> k) {
  const int64_t row = blockIdx.x, id = k.ids[row];
  const bool known = id >= 0 && id < k.V;
  for (int64_t c = threadIdx.x; c < k.C; c += blockDim.x)
    k.to[row * k.C + c] = known ? k.from[id * k.C + c] : T(Compute<T>(NAN));
}

// One warp per row of the table. It reads all ids, 32 at a time, and adds the gradients of its row
// in their order; atomics would add them in any order. The ids are read V times, mostly from cache.
//
// A token that occurs k times is added k times, and in bf16 and f16 each addition rounds, as on the
// CPU. Ids outside the table are ignored.
template <class T>
__global__ void embedding_backward_kernel(Lookup<T> k) {
  using F = Compute<T>;
  const int64_t row = first_element() / kWarp;
  if (row >= k.V) return;  // all threads of the warp
  T* sum = k.to + row * k.C;
  for (int64_t begin = 0; begin < k.R; begin += kWarp) {
    const bool mine = begin + lane() < k.R && k.ids[begin + lane()] == row;
    const uint32_t matches = __ballot_sync(0xffffffffu, mine);
    for (int i = 0; i < kWarp && matches >> i; ++i) {
      if (!(matches >> i & 1)) continue;
      const T* dy = k.from + (begin + i) * k.C;
      for (int64_t c = lane(); c < k.C; c += kWarp) sum[c] = T(F(sum[c]) + F(dy[c]));
    }
  }
}

// Position tables: the same TC = T * C elements are added to each of the B sequences.
template <class T>
__global__ void add_positions_kernel(int64_t n, int64_t TC, const T* x, const T* table, T* y) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = T(F(x[i]) + F(table[i % TC]));
}

// Sums every element over the batch in order, and rounds it to the table's type once.
template <class T>
__global__ void add_positions_backward_kernel(int64_t B, int64_t TC, const T* dy, T* dtable) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < TC; i += element_stride()) {
    F sum = 0;
    for (int64_t b = 0; b < B; ++b) sum += F(dy[b * TC + i]);
    dtable[i] = T(F(dtable[i]) + sum);
  }
}

}  // namespace

void CudaBackend::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    const Lookup<T> k{ids.numel(),        table.rows(),  y.dim(-1), elements<int32_t>(ids),
                      elements<T>(table), elements<T>(y)};
    launch(*this, embedding_kernel<T>, k.R, kThreads, k);
  });
}

void CudaBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                     const Tensor&) {
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    const Lookup<T> k{ids.numel(),     dtable.rows(),      dy.dim(-1), elements<int32_t>(ids),
                      elements<T>(dy), elements<T>(dtable)};
    launch(*this, embedding_backward_kernel<T>, blocks_for(k.V * kWarp), kThreads, k);
  });
}

void CudaBackend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  const int64_t n = x.numel(), TC = x.dim(1) * x.dim(2);
  for_float_type(y.dtype(), [&]<class T>(T) {
    launch(*this, add_positions_kernel<T>, blocks_for(n), kThreads, n, TC, elements<T>(x),
           elements<T>(table), elements<T>(y));
  });
}

void CudaBackend::add_positions_backward(const Tensor& dy, const Tensor& dtable, const Tensor&) {
  const int64_t B = dy.dim(0), TC = dy.dim(1) * dy.dim(2);
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    launch(*this, add_positions_backward_kernel<T>, blocks_for(TC), kThreads, B, TC,
           elements<T>(dy), elements<T>(dtable));
  });
}

}  // namespace zl::ZEROLAB_CUDA
