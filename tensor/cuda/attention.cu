#include "tensor/cuda/attention/kernels.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int kDeltaThreads = 8;  // of a query

// delta = the sum of dy * y of each query. The queries of all heads of a token are neighbours in
// memory, and here.
template <int kPack, class T>
__global__ void delta_kernel(Pass<T> pass) {
  using F = Compute<T>;
  const unsigned query = unsigned(first_element() / kDeltaThreads), heads = unsigned(pass.heads),
                 tokens = unsigned(pass.tokens), token = query / heads, b = token / tokens;
  const bool exists = b < pass.B;
  const int64_t from = int64_t(query) * pass.D;
  F sum = 0;
  for (int d = int(threadIdx.x) % kDeltaThreads * kPack; exists && d < pass.D;
       d += kDeltaThreads * kPack) {
    const auto y = load_pack<kPack>(static_cast<const T*>(pass.y) + from + d),
               dy = load_pack<kPack>(pass.dy + from + d);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += F(dy.at[j]) * F(y.at[j]);
  }
  sum = warp_sum<kDeltaThreads>(sum);
  if (exists && threadIdx.x % kDeltaThreads == 0)
    pass.delta[(int64_t(b) * heads + query % heads) * tokens + token % tokens] = sum;
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
void for_kernels(bool tf32, int D, std::initializer_list<const void*> addresses, F&& f) {
  const auto aligned = [](const void* address) { return uintptr_t(address) % 16 == 0; };
  if constexpr (sizeof(T) <= 4) {
    if ((sizeof(T) == 2 || tf32) && std::ranges::all_of(addresses, aligned) &&
        TensorCoreKernels<T>::supports(D))
      return f(TensorCoreKernels<T>());
  }
  f(ReadableKernels<T>());
}

}  // namespace

void load_attention_kernels(Dtype dtype, bool tf32) {
  for_float_type(dtype, [&]<class T>(T) {
    load_kernel(delta_kernel<pack_of<T>(), T>);
    load_kernel(delta_kernel<1, T>);
    for_kernels<T>(tf32, 64, {}, []<class Kernels>(Kernels) { Kernels::load(); });
  });
}

void CudaBackend::attention(const AttentionSaved& saved, const Tensor&) {
  if (saved.qkv.numel() == 0) return;
  for_float_type(saved.qkv.dtype(), [&]<class T>(T) {
    const Pass<T> pass = pass_over<T>(saved);
    for_kernels<T>(options_.tf32, pass.D, {pass.qkv, pass.y},
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
    constexpr int kPack = pack_of<T>();
    const bool packs = pass.D % kPack == 0 && packs_fit(pass.y, pass.dy);
    launch(*this, packs ? delta_kernel<kPack, T> : delta_kernel<1, T>,
           blocks_for(queries * kDeltaThreads), kThreads, pass);
    for_kernels<T>(options_.tf32, pass.D, {pass.qkv, pass.dy, pass.dqkv},
                   [&]<class Kernels>(Kernels) { Kernels::backward(stream(), pass); });
  });
}

}  // namespace zl::ZEROLAB_CUDA
