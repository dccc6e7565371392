// Updates of AdamW and SGD in one pass over parameter, gradient and state. Each element is computed
// alone. Compiled with --fmad=false, for the bits of the CPU (tensor/optimizer_math.h).
#include "tensor/cuda/launch.h"
#include "tensor/optimizer_math.h"

namespace zl::ZEROLAB_CUDA {
namespace {

void* address(const Tensor& t) { return device_address(t.address()); }

template <class W, class G>
__global__ void adamw_kernel(int64_t n, W weights, const G* gradient,
                             AdamWElement<typename W::F> element) {
  using F = typename W::F;
  using P = typename W::Parameter;
  constexpr int kPack = pack_of<P, G, F>();
  const int64_t packs =
      packs_fit(weights.parameter, weights.master, gradient, element.exp_avg, element.exp_avg_sq)
          ? n / kPack
          : 0;
  for (int64_t pack = first_element(); pack < packs; pack += element_stride()) {
    const int64_t at = pack * kPack;
    auto m = load_pack<kPack>(element.exp_avg + at), v = load_pack<kPack>(element.exp_avg_sq + at);
    auto g = load_pack<kPack>(gradient + at);
    Pack<P, kPack> p;
    Pack<F, kPack> master;
    if constexpr (W::kHasMaster)
      master = load_pack<kPack>(weights.master + at);
    else
      p = load_pack<kPack>(weights.parameter + at);
    auto in_registers = element;
    in_registers.exp_avg = m.at, in_registers.exp_avg_sq = v.at;
#pragma unroll
    for (int j = 0; j < kPack; ++j) in_registers.update(j, W{p.at, master.at}, g.at);
    store_pack(m, element.exp_avg + at), store_pack(v, element.exp_avg_sq + at);
    store_pack(p, weights.parameter + at);
    if constexpr (W::kHasMaster) store_pack(master, weights.master + at);
  }
  for (int64_t i = packs * kPack + first_element(); i < n; i += element_stride())
    element.update(i, weights, gradient);
}

template <bool has_momentum, class W, class G>
__global__ void sgd_kernel(int64_t n, W weights, const G* gradient,
                           SgdElement<typename W::F> element) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    element.template update<has_momentum>(i, weights, gradient);
}

}  // namespace

void CudaBackend::adamw(const AdamWUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient) {
    using W = decltype(weights);
    using G = std::remove_cvref_t<decltype(*gradient)>;
    constexpr int kPack = pack_of<typename W::Parameter, G, typename W::F>();
    launch(*this, adamw_kernel<W, G>, blocks_for(n, kThreads * kPack), kThreads, n, weights,
           gradient, AdamWElement<typename W::F>(u, address(u.exp_avg), address(u.exp_avg_sq)));
  });
}

void CudaBackend::sgd(const SgdUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient) {
    using W = decltype(weights);
    using G = std::remove_cvref_t<decltype(*gradient)>;
    const auto kernel = u.momentum == 0 ? sgd_kernel<false, W, G> : sgd_kernel<true, W, G>;
    launch(*this, kernel, blocks_for(n), kThreads, n, weights, gradient,
           SgdElement<typename W::F>(u, address(u.momentum_buffer)));
  });
}

}  // namespace zl::ZEROLAB_CUDA
