// Layer norm: one warp per row. Sums over rows have layer_norm_parts parts, added in order.
#include "tensor/cuda/launch.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int kRowsOfBlock = kThreads / kWarp;

__device__ inline int64_t row_of_warp() { return first_element() / kWarp; }
__device__ inline int lane() { return int(threadIdx.x) % kWarp; }

// term(0) + … + term(n - 1), the same on all threads of the warp.
template <class Term>
__device__ auto sum_terms(int64_t n, Term term) {
  decltype(term(int64_t(0))) sum = 0;
  for (int64_t i = lane(); i < n; i += kWarp) sum += term(i);
  return warp_sum(sum);
}

// The input of a layer norm and its row statistics.
template <class T>
struct Rows {
  using F = Compute<T>;
  int64_t R, C;
  const T *x, *weight;
  F *mean, *rstd;
  explicit Rows(const LayerNormSaved& saved)
      : R(saved.mean.numel()),
        C(saved.weight.numel()),
        x(elements<T>(saved.x)),
        weight(elements<T>(saved.weight)),
        mean(elements<F>(saved.mean)),
        rstd(elements<F>(saved.rstd)) {}
  __device__ F normal(int64_t r, int64_t c) const { return (F(x[r * C + c]) - mean[r]) * rstd[r]; }
};

template <class T>
__global__ void layer_norm_kernel(Rows<T> rows, const T* bias, Compute<T> eps, T* y) {
  using F = Compute<T>;
  const int64_t r = row_of_warp(), C = rows.C;
  if (r >= rows.R) return;  // all threads of the warp; the kernel has no __syncthreads
  const T* x = rows.x + r * C;
  // Two passes: E[x^2] - E[x]^2 would cancel where the mean is large.
  const F mean = sum_terms(C, [&](int64_t c) { return F(x[c]); }) / F(C);
  const F variance =
      sum_terms(C, [&](int64_t c) { return (F(x[c]) - mean) * (F(x[c]) - mean); }) / F(C);
  const F rstd = F(1) / sqrt(variance + eps);
  for (int64_t c = lane(); c < C; c += kWarp)
    y[r * C + c] = T((F(x[c]) - mean) * rstd * F(rows.weight[c]) + F(bias[c]));
  if (lane() == 0) rows.mean[r] = mean, rows.rstd[r] = rstd;
}

// With n = normalised x and d = dy * weight: dx = rstd * (d - mean(d) - n * mean(d * n)).
template <class T>
__global__ void backward_rows_kernel(Rows<T> rows, const T* dy, T* dx, bool adds) {
  using F = Compute<T>;
  const int64_t r = row_of_warp(), C = rows.C;
  if (r >= rows.R) return;  // all threads of the warp
  const auto d = [&](int64_t c) { return F(dy[r * C + c]) * F(rows.weight[c]); };
  const F mean_d = sum_terms(C, d) / F(C);
  const F mean_dn = sum_terms(C, [&](int64_t c) { return d(c) * rows.normal(r, c); }) / F(C);
  for (int64_t c = lane(); c < C; c += kWarp) {
    const F value = rows.rstd[r] * (d(c) - mean_d - rows.normal(r, c) * mean_dn);
    T& out = dx[r * C + c];
    out = T(adds ? F(out) + value : value);
  }
}

// One part of the rows, 32 columns. Each of the 8 warps adds every eighth row; the 8 sums are added
// in order. sums: (2, parts, C), of dweight, then of dbias.
template <class T>
__global__ void backward_columns_kernel(Rows<T> rows, const T* dy, int64_t parts,
                                        Compute<T>* sums) {
  using F = Compute<T>;
  __shared__ F weights[kRowsOfBlock][kWarp], biases[kRowsOfBlock][kWarp];
  const int warp = int(threadIdx.x) / kWarp;
  const int64_t part = blockIdx.x % parts, c = blockIdx.x / parts * kWarp + lane(), C = rows.C;
  const int64_t begin = rows.R * part / parts, end = rows.R * (part + 1) / parts;
  F weight = 0, bias = 0;
  for (int64_t r = begin + warp; r < end && c < C; r += kRowsOfBlock) {
    const F incoming = F(dy[r * C + c]);
    weight += incoming * rows.normal(r, c);
    bias += incoming;
  }
  weights[warp][lane()] = weight, biases[warp][lane()] = bias;
  __syncthreads();
  if (warp > 0 || c >= C) return;
  for (int w = 1; w < kRowsOfBlock; ++w) weight += weights[w][lane()], bias += biases[w][lane()];
  sums[part * C + c] = weight;
  sums[(parts + part) * C + c] = bias;
}

// Adds the parts, and their sums to the gradient buffers, rounded to T once.
template <class T>
__global__ void add_parts_kernel(int64_t C, int64_t parts, const Compute<T>* sums, T* dweight,
                                 T* dbias) {
  using F = Compute<T>;
  const int64_t c = first_element();
  if (c >= C) return;
  F weight = 0, bias = 0;
  for (int64_t part = 0; part < parts; ++part)
    weight += sums[part * C + c], bias += sums[(parts + part) * C + c];
  dweight[c] = T(F(dweight[c]) + weight);
  dbias[c] = T(F(dbias[c]) + bias);
}

}  // namespace

void CudaBackend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                             const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    const Rows<T> rows(saved);
    launch(*this, layer_norm_kernel<T>, blocks_for(rows.R, kRowsOfBlock), kThreads, rows,
           elements<T>(bias), Compute<T>(eps), elements<T>(y));
  });
}

void CudaBackend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                                      const LayerNormGradients& out, const Tensor& workspace) {
  for_float_type(dy.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const Rows<T> rows(saved);
    const int64_t C = rows.C, parts = layer_norm_parts(rows.R);
    if (C == 0) return;
    F* const sums = elements<F>(workspace);
    // The columns first, because dx may be dy.
    launch(*this, backward_columns_kernel<T>, blocks_for(C, kWarp) * parts, kThreads, rows,
           elements<T>(dy), parts, sums);
    launch(*this, add_parts_kernel<T>, blocks_for(C), kThreads, C, parts, sums,
           elements<T>(out.dweight), elements<T>(out.dbias));
    launch(*this, backward_rows_kernel<T>, blocks_for(rows.R, kRowsOfBlock), kThreads, rows,
           elements<T>(dy), elements<T>(out.dx), out.write_dx == Write::add);
  });
}

}  // namespace zl::ZEROLAB_CUDA
