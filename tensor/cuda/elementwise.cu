// Fills, casts, sums and GELU. Maps compute each element in one thread, so neither the grid nor
// packs change a bit.
#include <limits>

#include "tensor/cuda/column_sums.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int64_t kMostBlocks = 4096;  // beyond it, each thread computes several elements

int64_t capped_blocks(int64_t n, int64_t per_thread = 1) {
  return std::min(blocks_for(n, kThreads * per_thread), kMostBlocks);
}

// y[i] = op(x[i]...): in packs, and one by one what is left or where packs do not fit. y may be one
// of the inputs.
template <class Op, class T, class... Inputs>
__global__ void map_kernel(int64_t n, Op op, T* y, const Inputs*... x) {
  constexpr int kPack = pack_of<T, Inputs...>();
  const int64_t packs = packs_fit(y, x...) ? n / kPack : 0;
  const auto map = [&](int64_t at, auto... inputs) {
    Pack<T, kPack> out;
#pragma unroll
    for (int j = 0; j < kPack; ++j) out.at[j] = op(inputs.at[j]...);
    store_pack(out, y + at);
  };
  for (int64_t p = first_element(); p < packs; p += element_stride())
    map(p * kPack, load_pack<kPack>(x + p * kPack)...);
  for (int64_t i = packs * kPack + first_element(); i < n; i += element_stride())
    y[i] = op(x[i]...);
}

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class S, class T>
struct Cast {
  __device__ T operator()(S x) const { return T(Compute<T>(Compute<S>(x))); }
};

template <class T>
struct Add {
  using F = Compute<T>;
  __device__ T operator()(T a, T b) const { return T(F(a) + F(b)); }
};

template <class T>
struct Divide {
  Compute<T> divisor;
  __device__ T operator()(T x) const { return T(Compute<T>(x) / divisor); }
};

template <class S, class T>
struct Accumulate {
  using F = decltype(Compute<S>() + Compute<T>());  // the wider of the two
  __device__ T operator()(T y, S x) const {
    return T(Compute<T>(F(Compute<T>(y)) + F(Compute<S>(x))));
  }
};

// tanh form: x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), is x times the logistic function
// of 2u.
constexpr double kTwiceSqrt2OverPi = 1.5957691216057308, kCubic = 0.044715;

template <class F>
__device__ F logistic_of_2u(F x) {
  return F(1) / (F(1) + std::exp(-F(kTwiceSqrt2OverPi) * (x + F(kCubic) * x * x * x)));
}

template <class T>
struct Gelu {
  using F = Compute<T>;
  __device__ T operator()(T x) const { return T(F(x) * logistic_of_2u(F(x))); }
};

template <class T>
struct GeluBackward {
  using F = Compute<T>;
  __device__ F gradient(T x, T dy) const {
    const F v = F(x), gate = logistic_of_2u(v);
    // For large |x|, x^3 may be infinite where 1 - gate is 0; the term is 0 there.
    const F bend = gate * (F(1) - gate),
            steep = F(kTwiceSqrt2OverPi) * (F(1) + F(3 * kCubic) * v * v);
    const F slope = gate + (bend == F(0) ? F(0) : v * bend * steep);
    return F(dy) * slope;
  }
  __device__ T operator()(T x, T dy) const { return T(gradient(x, dy)); }
  __device__ T operator()(T x, T dy, T dx) const { return T(F(dx) + gradient(x, dy)); }
};

// A thread has one pack of columns, and adds the bias to it in every `stride`-th row.
template <int kPack, class T>
__global__ void add_bias_kernel(int64_t rows, int64_t columns, const T* bias, T* y) {
  using F = Compute<T>;
  const int64_t packs = columns / kPack, stride = gridDim.x * int64_t(blockDim.x) / packs,
                first = first_element() / packs, column = first_element() % packs * kPack;
  if (first >= stride) return;
  const auto added = load_pack<kPack>(bias + column);
  for (int64_t row = first; row < rows; row += stride) {
    T* const to = y + row * columns + column;
    auto pack = load_pack<kPack>(to);
#pragma unroll
    for (int j = 0; j < kPack; ++j) pack.at[j] = T(F(pack.at[j]) + F(added.at[j]));
    store_pack(pack, to);
  }
}

template <class T>
__global__ void set_padding_kernel(int64_t n, int64_t columns, int64_t row, T value, T* y) {
  const int64_t padding = row - columns;
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i / padding * row + columns + i % padding] = value;
}

template <class T>
struct MatrixRows {
  const T* x;
  int64_t columns;
  template <int kPack>
  __device__ void add(int64_t row, int64_t column, PackSums<Compute<T>, 1, kPack>& sums) const {
    const auto pack = load_pack<kPack>(x + row * columns + column);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sums[0][j] += Compute<T>(pack.at[j]);
  }
};

// Launches map_kernel for y and inputs of n elements.
template <class Op, class T, class... Inputs>
void map(CudaBackend& backend, Op op, int64_t n, T* y, Inputs*... x) {
  launch(backend, map_kernel<Op, T, Inputs...>, capped_blocks(n, pack_of<T, Inputs...>()), kThreads,
         n, op, y, x...);
}

}  // namespace

void CudaBackend::fill(double value, const Tensor& out) {
  const int64_t n = out.numel();
  if (out.dtype() == Dtype::i32)
    return map(*this, Constant<int32_t>{int32_t(value)}, n, elements<int32_t>(out));
  for_float_type(out.dtype(), [&]<class T>(T) {
    map(*this, Constant<T>{T(Compute<T>(value))}, n, elements<T>(out));
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
      map(*this, Cast<S, T>(), to.numel(), elements<T>(to), elements<S>(from));
    });
  });
}

void CudaBackend::add(const Tensor& a, const Tensor& b, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    map(*this, Add<T>(), y.numel(), elements<T>(y), elements<T>(a), elements<T>(b));
  });
}

void CudaBackend::divide(double divisor, const Tensor& x) {
  for_float_type(x.dtype(), [&]<class T>(T) {
    T* const y = elements<T>(x);
    map(*this, Divide<T>{Compute<T>(divisor)}, x.numel(), y, y);
  });
}

void CudaBackend::accumulate(const Tensor& from, const Tensor& into) {
  for_float_type(from.dtype(), [&]<class S>(S) {
    for_float_type(into.dtype(), [&]<class T>(T) {
      T* const y = elements<T>(into);
      map(*this, Accumulate<S, T>(), into.numel(), y, y, elements<S>(from));
    });
  });
}

void CudaBackend::gelu(const Tensor& x, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    map(*this, Gelu<T>(), y.numel(), elements<T>(y), elements<T>(x));
  });
}

void CudaBackend::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Write write) {
  for_float_type(dx.dtype(), [&]<class T>(T) {
    T *const px = elements<T>(x), *const pdy = elements<T>(dy), *const pdx = elements<T>(dx);
    if (write == Write::add)
      map(*this, GeluBackward<T>(), dx.numel(), pdx, px, pdy, pdx);
    else
      map(*this, GeluBackward<T>(), dx.numel(), pdx, px, pdy);
  });
}

void CudaBackend::add_bias(const Tensor& bias, const Tensor& y) {
  const int64_t columns = bias.numel(), rows = y.rows();
  for_float_type(y.dtype(), [&]<class T>(T) {
    T *const from = elements<T>(bias), *const to = elements<T>(y);
    constexpr int kPack = pack_of<T>();
    const bool packs = columns % kPack == 0 && packs_fit(from, to);
    const int64_t of_row = columns / (packs ? kPack : 1);
    launch(*this, packs ? add_bias_kernel<kPack, T> : add_bias_kernel<1, T>,
           std::max(capped_blocks(rows * of_row), blocks_for(of_row)), kThreads, rows, columns,
           from, to);
  });
}

void CudaBackend::set_padding(int64_t columns, const Tensor& y) {
  const int64_t row = y.dim(-1), n = y.rows() * (row - columns);
  for_float_type(y.dtype(), [&]<class T>(T) {
    launch(*this, set_padding_kernel<T>, capped_blocks(n), kThreads, n, columns, row,
           T(-std::numeric_limits<Compute<T>>::infinity()), elements<T>(y));
  });
}

void CudaBackend::sum_rows(const Tensor& x, const Tensor& out, const Tensor& workspace) {
  const int64_t columns = out.numel(), rows = columns ? x.numel() / columns : 0;
  for_float_type(out.dtype(), [&]<class T>(T) {
    const MatrixRows<T> values{elements<T>(x), columns};
    const bool packs = columns % pack_of<T>() == 0 && packs_fit(values.x);
    add_column_sums<1, T>(*this, {rows, columns, packs}, values, {{elements<T>(out)}}, workspace);
  });
}

}  // namespace zl::ZEROLAB_CUDA
