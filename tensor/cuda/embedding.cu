// Token and position tables. A gradient is the sum of the rows in their order, added to the table
// once.
//
// One thread sums all contributions to an element of a table, in the order of the CPU's loop. So
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

constexpr int kIdsPerThread = 4, kIds = kIdsPerThread * kThreads;  // that a block reads at once
constexpr int kColumnsPerThread = 4, kColumns = kColumnsPerThread * kThreads;  // of a block
constexpr int kInFlight = 8;  // rows that a thread loads before it adds the first of them

// Sets bit l of matches[w] if ids[begin + 32 w + l] is `id`. Returns false if no id matches;
// matches is then unchanged. All threads of the block must call it.
__device__ bool find(const int32_t* ids, int64_t begin, int64_t end, int32_t id,
                     uint32_t (&matches)[kIds / kWarp]) {
  bool any = false;
  uint32_t found[kIdsPerThread];
#pragma unroll
  for (int j = 0; j < kIdsPerThread; ++j) {
    const int64_t i = begin + j * kThreads + threadIdx.x;
    found[j] = __ballot_sync(0xffffffffu, i < end && ids[i] == id);
    any |= found[j] != 0;
  }
  if (!__syncthreads_or(any)) return false;
  if (lane() == 0)
    for (int j = 0; j < kIdsPerThread; ++j)
      matches[(j * kThreads + threadIdx.x) / kWarp] = found[j];
  __syncthreads();
  return true;
}

// One block per row of dy and kColumns columns. The block of a token's first row sums all rows of
// this token in their order, in the compute type, and adds the sum to the table once; the others
// end when they find an earlier row. Atomics would add in any order. Each token reads all ids, from
// cache: R times the number of different tokens. Ids outside the table are ignored.
template <class T>
__global__ void embedding_backward_kernel(Lookup<T> k, int64_t chunks) {
  using F = Compute<T>;
  __shared__ uint32_t matches[kIds / kWarp];
  __shared__ int rows[kIds];  // that match, from `begin`
  const int64_t first = blockIdx.x / chunks, column = blockIdx.x % chunks * kColumns + threadIdx.x;
  const int32_t id = k.ids[first];
  if (id < 0 || id >= k.V) return;  // all threads of the block
  for (int64_t begin = 0; begin < first; begin += kIds)
    if (find(k.ids, begin, first, id, matches)) return;
  F sum[kColumnsPerThread] = {};
  for (int64_t begin = first; begin < k.R; begin += kIds) {
    if (!find(k.ids, begin, k.R, id, matches)) continue;
    int n = 0;
    for (int w = 0; w < kIds / kWarp; ++w) {
      const uint32_t bits = matches[w], before = bits & ((1u << lane()) - 1);
      if (int(threadIdx.x) / kWarp == w % (kThreads / kWarp) && bits >> lane() & 1)
        rows[n + __popc(before)] = w * kWarp + lane();
      n += __popc(bits);
    }
    __syncthreads();
    for (int r = 0; r < n; r += kInFlight) {
      T terms[kInFlight][kColumnsPerThread] = {};
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const T* row = k.from + (begin + rows[r + i < n ? r + i : n - 1]) * k.C;
#pragma unroll
        for (int j = 0; j < kColumnsPerThread; ++j)
          if (column + j * kThreads < k.C) terms[i][j] = row[column + j * kThreads];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        for (int j = 0; j < kColumnsPerThread; ++j)
          if (r + i < n) sum[j] += F(terms[i][j]);
    }
  }
  for (int j = 0; j < kColumnsPerThread; ++j) {
    const int64_t c = column + j * kThreads;
    if (c >= k.C) continue;
    T& to = k.to[id * k.C + c];
    to = T(F(to) + sum[j]);
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
    const int64_t chunks = blocks_for(k.C, kColumns);
    launch(*this, embedding_backward_kernel<T>, k.R * chunks, kThreads, k, chunks);
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
