// Fills, casts, sums and GELU. One thread computes each element: the grid changes no bit.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int64_t kMostBlocks = 4096;  // beyond it, each thread computes several elements

int64_t blocks_of(int64_t n) { return std::min(blocks_for(n), kMostBlocks); }

template <class T>
__global__ void fill_kernel(int64_t n, T value, T* y) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = value;
}

template <class S, class T>
__global__ void cast_kernel(int64_t n, const S* x, T* y) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = T(Compute<T>(Compute<S>(x[i])));
}

template <class T>
__global__ void add_kernel(int64_t n, const T* a, const T* b, T* y) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = T(F(a[i]) + F(b[i]));
}

template <class S, class T>
__global__ void accumulate_kernel(int64_t n, const S* x, T* y) {
  using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = T(Compute<T>(F(Compute<T>(y[i])) + F(Compute<S>(x[i]))));
}

// tanh form: x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), is x times the logistic function
// of 2u.
constexpr double kTwiceSqrt2OverPi = 1.5957691216057308, kCubic = 0.044715;

template <class F>
__device__ F logistic_of_2u(F x) {
  return F(1) / (F(1) + std::exp(-F(kTwiceSqrt2OverPi) * (x + F(kCubic) * x * x * x)));
}

template <class T>
__global__ void gelu_kernel(int64_t n, const T* x, T* y) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = T(F(x[i]) * logistic_of_2u(F(x[i])));
}

template <class T>
__global__ void gelu_backward_kernel(int64_t n, const T* x, const T* dy, T* dx, bool adds) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const F v = F(x[i]), gate = logistic_of_2u(v);
    // For large |x|, x^3 may be infinite where 1 - gate is 0; the term is 0 there.
    const F bend = gate * (F(1) - gate),
            steep = F(kTwiceSqrt2OverPi) * (F(1) + F(3 * kCubic) * v * v);
    const F slope = gate + (bend == F(0) ? F(0) : v * bend * steep);
    const F d = F(dy[i]) * slope;
    dx[i] = T(adds ? F(dx[i]) + d : d);
  }
}

template <class T>
__global__ void add_bias_kernel(int64_t n, int64_t columns, const T* bias, T* y) {
  using F = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = T(F(y[i]) + F(bias[i % columns]));
}

// A column has kParts threads: thread p adds every kParts-th row from p. Their sums are added in
// order.
constexpr int kColumns = 32, kParts = 8;

template <class T>
__global__ void sum_rows_kernel(int64_t rows, int64_t columns, const T* x, T* out) {
  using F = Compute<T>;
  __shared__ F parts[kParts][kColumns];
  const int lane = int(threadIdx.x) % kColumns, part = int(threadIdx.x) / kColumns;
  const int64_t column = int64_t(blockIdx.x) * kColumns + lane;
  F sum = 0;
  for (int64_t row = part; row < rows && column < columns; row += kParts)
    sum += F(x[row * columns + column]);
  parts[part][lane] = sum;
  __syncthreads();
  if (part > 0 || column >= columns) return;
  for (int p = 1; p < kParts; ++p) sum += parts[p][lane];
  out[column] = T(F(out[column]) + sum);
}

}  // namespace

void CudaBackend::fill(double value, const Tensor& out) {
  const int64_t n = out.numel();
  if (out.dtype() == Dtype::i32)
    return launch(*this, fill_kernel<int32_t>, blocks_of(n), kThreads, n, int32_t(value),
                  elements<int32_t>(out));
  for_float_type(out.dtype(), [&]<class T>(T) {
    launch(*this, fill_kernel<T>, blocks_of(n), kThreads, n, T(Compute<T>(value)),
           elements<T>(out));
  });
}

void CudaBackend::copy(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  if (from.dtype() == to.dtype()) {  // also between host and GPU
    require_cuda(cudaMemcpyAsync(to.address(), from.address(), size_t(to.bytes()),
                                 cudaMemcpyDefault, stream()),
                 "a copy failed");
    if (from.backend().host_addressable() || to.backend().host_addressable())
      require_cuda(cudaStreamSynchronize(stream()), "a copy failed");
    return;
  }
  require(&from.backend() == this && &to.backend() == this,
          "copy: a cast between host and GPU needs a copy first");
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(to.dtype(), [&]<class T>(T) {
      launch(*this, cast_kernel<S, T>, blocks_of(to.numel()), kThreads, to.numel(),
             elements<S>(from), elements<T>(to));
    });
  });
}

void CudaBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    launch(*this, add_kernel<T>, blocks_of(y.numel()), kThreads, y.numel(), elements<T>(a),
           elements<T>(b), elements<T>(y));
  });
}

void CudaBackend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(into.dtype(), [&]<class T>(T) {
      launch(*this, accumulate_kernel<S, T>, blocks_of(into.numel()), kThreads, into.numel(),
             elements<S>(from), elements<T>(into));
    });
  });
}

void CudaBackend::gelu(const Tensor& x, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    launch(*this, gelu_kernel<T>, blocks_of(y.numel()), kThreads, y.numel(), elements<T>(x),
           elements<T>(y));
  });
}

void CudaBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  for_float_type(dx.dtype(), [&]<class T>(T) {
    launch(*this, gelu_backward_kernel<T>, blocks_of(dx.numel()), kThreads, dx.numel(),
           elements<T>(x), elements<T>(dy), elements<T>(dx), write == Write::add);
  });
}

void CudaBackend::add_bias(const Tensor& bias, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    launch(*this, add_bias_kernel<T>, blocks_of(y.numel()), kThreads, y.numel(), bias.numel(),
           elements<T>(bias), elements<T>(y));
  });
}

void CudaBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor&) {
  const int64_t columns = out.numel(), rows = columns ? x.numel() / columns : 0;
  for_float_type(out.dtype(), [&]<class T>(T) {
    launch(*this, sum_rows_kernel<T>, blocks_for(columns, kColumns), kColumns * kParts, rows,
           columns, elements<T>(x), elements<T>(out));
  });
}

}  // namespace zl::ZEROLAB_CUDA
