// Layer norm: one warp per row, whose sums stay within the warp. What is summed over rows is summed
// in layer_norm_parts parts, and then the parts in order.
#include "tensor/cuda/launch.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int kRowsOfBlock = kThreads / kWarp;

__device__ inline int64_t row_of_warp() { return first_element() / kWarp; }
__device__ inline int lane() { return int(threadIdx.x) % kWarp; }

// term(0) + … + term(n - 1) on all threads of the warp.
template <class Term>
__device__ auto sum_terms(int64_t n, Term term) {
  decltype(term(int64_t(0))) sum = 0;
  for (int64_t i = lane(); i < n; i += kWarp) sum += term(i);
  return warp_sum(sum);
}

template <class T>
struct Forward {
  using F = Compute<T>;
  int64_t R, C;
  const T *x, *weight, *bias;
  F eps;
  F *mean, *rstd;
  T* y;
};

template <class T>
__global__ void layer_norm_kernel(Forward<T> p) {
  using F = Compute<T>;
  const int64_t r = row_of_warp();
  if (r >= p.R) return;  // the whole warp, and nobody waits for the block
  const T* x = p.x + r * p.C;
  // Two passes: E[x^2] - E[x]^2 would cancel where the mean is large.
  const F mean = sum_terms(p.C, [&](int64_t c) { return F(x[c]); }) / F(p.C);
  const F variance =
      sum_terms(p.C, [&](int64_t c) { return (F(x[c]) - mean) * (F(x[c]) - mean); }) / F(p.C);
  const F rstd = F(1) / sqrt(variance + p.eps);
  for (int64_t c = lane(); c < p.C; c += kWarp)
    p.y[r * p.C + c] = T((F(x[c]) - mean) * rstd * F(p.weight[c]) + F(p.bias[c]));
  if (lane() == 0) p.mean[r] = mean, p.rstd[r] = rstd;
}

template <class T>
struct Backward {
  using F = Compute<T>;
  int64_t R, C, parts;
  const T *x, *weight, *dy;
  const F *mean, *rstd;
  T *dx, *dweight, *dbias;
  F* sums;  // (2, parts, C): of dweight, then of dbias

  __device__ F normal(int64_t r, int64_t c) const { return (F(x[r * C + c]) - mean[r]) * rstd[r]; }
};

// With n = normalised x and d = dy * weight: dx = rstd * (d - mean(d) - n * mean(d * n)).
template <class T>
__global__ void backward_rows_kernel(Backward<T> p, bool adds) {
  using F = Compute<T>;
  const int64_t r = row_of_warp();
  if (r >= p.R) return;  // the whole warp
  const auto d = [&](int64_t c) { return F(p.dy[r * p.C + c]) * F(p.weight[c]); };
  const F mean_d = sum_terms(p.C, d) / F(p.C);
  const F mean_dn = sum_terms(p.C, [&](int64_t c) { return d(c) * p.normal(r, c); }) / F(p.C);
  for (int64_t c = lane(); c < p.C; c += kWarp) {
    const F value = p.rstd[r] * (d(c) - mean_d - p.normal(r, c) * mean_dn);
    T& dx = p.dx[r * p.C + c];
    dx = T(adds ? F(dx) + value : value);
  }
}

// One part of the rows and 32 columns: its 8 warps take every eighth row, then those 8 sums are
// added in order.
template <class T>
__global__ void backward_columns_kernel(Backward<T> p) {
  using F = Compute<T>;
  __shared__ F weights[kRowsOfBlock][kWarp], biases[kRowsOfBlock][kWarp];
  const int warp = int(threadIdx.x) / kWarp;
  const int64_t part = blockIdx.x % p.parts, c = blockIdx.x / p.parts * kWarp + lane();
  const int64_t begin = p.R * part / p.parts, end = p.R * (part + 1) / p.parts;
  F weight = 0, bias = 0;
  for (int64_t r = begin + warp; r < end && c < p.C; r += kRowsOfBlock) {
    const F incoming = F(p.dy[r * p.C + c]);
    weight += incoming * p.normal(r, c);
    bias += incoming;
  }
  weights[warp][lane()] = weight, biases[warp][lane()] = bias;
  __syncthreads();
  if (warp > 0 || c >= p.C) return;
  for (int w = 1; w < kRowsOfBlock; ++w) weight += weights[w][lane()], bias += biases[w][lane()];
  p.sums[part * p.C + c] = weight;
  p.sums[(p.parts + part) * p.C + c] = bias;
}

// Rounded to T once, when the sum meets the gradient buffers.
template <class T>
__global__ void add_parts_kernel(Backward<T> p) {
  using F = Compute<T>;
  const int64_t c = first_element();
  if (c >= p.C) return;
  F weight = 0, bias = 0;
  for (int64_t part = 0; part < p.parts; ++part)
    weight += p.sums[part * p.C + c], bias += p.sums[(p.parts + part) * p.C + c];
  p.dweight[c] = T(F(p.dweight[c]) + weight);
  p.dbias[c] = T(F(p.dbias[c]) + bias);
}

}  // namespace

void CudaBackend::layer_norm(const LayerNormSaved& saved, const Tensor& bias, double eps,
                             const Tensor& y) {
  for_float_type(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel();
    const Forward<T> p{R,
                       C,
                       elements<T>(saved.x),
                       elements<T>(saved.weight),
                       elements<T>(bias),
                       F(eps),
                       elements<F>(saved.mean),
                       elements<F>(saved.rstd),
                       elements<T>(y)};
    launch(*this, layer_norm_kernel<T>, blocks_for(R, kRowsOfBlock), kThreads, p);
  });
}

void CudaBackend::layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy,
                                      const LayerNormGradients& out, const Tensor& workspace) {
  for_float_type(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    using F = Compute<T>;
    const int64_t C = saved.weight.numel(), R = saved.mean.numel(), parts = layer_norm_parts(R);
    if (C == 0) return;
    const Backward<T> p{R,
                        C,
                        parts,
                        elements<T>(saved.x),
                        elements<T>(saved.weight),
                        elements<T>(dy),
                        elements<F>(saved.mean),
                        elements<F>(saved.rstd),
                        elements<T>(out.dx),
                        elements<T>(out.dweight),
                        elements<T>(out.dbias),
                        elements<F>(workspace)};
    // The columns first: dx may be dy.
    launch(*this, backward_columns_kernel<T>, blocks_for(C, kWarp) * parts, kThreads, p);
    launch(*this, add_parts_kernel<T>, blocks_for(C), kThreads, p);
    launch(*this, backward_rows_kernel<T>, blocks_for(R, kRowsOfBlock), kThreads, p,
           out.write_dx == Write::add);
  });
}

}  // namespace zl::ZEROLAB_CUDA
