#include "tensor/cuda/attention/kernels.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// delta = the sum of dy * y of each query. One warp per query.
template <class T>
__global__ void delta_kernel(Pass<T> pass) {
  using F = Compute<T>;
  const int64_t query = first_element() / kWarp, head = query / pass.tokens;
  if (head >= pass.B * pass.heads) return;  // all threads of the warp
  const Matrix<const T> y =
      pass.of_head(static_cast<const T*>(pass.y), head).from(query % pass.tokens);
  const Matrix<const T> dy = pass.of_head(pass.dy, head).from(query % pass.tokens);
  F sum = 0;
  for (int d = lane(); d < pass.D; d += kWarp) sum += dy.get(0, d) * y.get(0, d);
  sum = warp_sum(sum);
  if (lane() == 0) pass.delta[query] = sum;
}

template <class T>
Pass<T> pass_over(const AttentionSaved& saved) {
  const int64_t B = saved.qkv.dim(0), tokens = saved.qkv.dim(1),
                D = saved.qkv.dim(2) / 3 / saved.heads;
  return {B,
          tokens,
          saved.heads,
          int(D),
          elements<T>(saved.qkv),
          elements<T>(saved.y),
          elements<Compute<T>>(saved.log_sum_exp)};
}

// Calls f with the fastest kernels for heads of D channels at these addresses.
template <class T, class F>
void for_kernels(int D, std::initializer_list<const void*> addresses, F&& f) {
  const auto aligned = [](const void* address) { return uintptr_t(address) % 16 == 0; };
  if constexpr (sizeof(T) == 2) {
    if (std::ranges::all_of(addresses, aligned) && TensorCoreKernels<T>::supports(D))
      return f(TensorCoreKernels<T>());
  }
  f(ReadableKernels<T>());
}

}  // namespace

void load_attention_kernels(Dtype dtype) {
  for_float_type(dtype, [&]<class T>(T) {
    load_kernel(delta_kernel<T>);
    for_kernels<T>(64, {}, []<class Kernels>(Kernels) { Kernels::load(); });
  });
}

void CudaBackend::attention(const AttentionSaved& saved, const Tensor&) {
  if (saved.qkv.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class T>(T) {
    const Pass<T> pass = pass_over<T>(saved);
    for_kernels<T>(pass.D, {pass.qkv, pass.y},
                   [&]<class Kernels>(Kernels) { Kernels::forward(stream(), pass); });
  });
}

void CudaBackend::attention_backward(const AttentionSaved& saved, const Tensor& dy,
                                     const Tensor& dqkv, const Tensor& workspace) {
  if (saved.qkv.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class T>(T) {
    Pass<T> pass = pass_over<T>(saved);
    pass.dy = elements<T>(dy);
    pass.dqkv = elements<T>(dqkv);
    pass.delta = elements<Compute<T>>(workspace);
    const int64_t queries = pass.B * pass.heads * pass.tokens;
    launch(*this, delta_kernel<T>, blocks_for(queries * kWarp), kThreads, pass);
    for_kernels<T>(pass.D, {pass.qkv, pass.dy, pass.dqkv},
                   [&]<class Kernels>(Kernels) { Kernels::backward(stream(), pass); });
  });
}

}  // namespace zl::ZEROLAB_CUDA
