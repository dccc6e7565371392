// Updates of AdamW and SGD in one pass over parameter, gradient and state. Each element is computed
// alone. Compiled with --fmad=false, for the bits of the CPU (tensor/optimizer_math.h).
#include "tensor/cuda/launch.h"
#include "tensor/optimizer_math.h"

namespace zl::ZEROLAB_CUDA {
namespace {

void* address(const Tensor& t) { return device_address(t.address()); }

template <class W, class G>
__global__ void update_kernel(int64_t n, W weights, const G* gradient,
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

template <class W, class G, bool has_momentum>
__global__ void update_kernel(int64_t n, W weights, const G* gradient,
                              SgdElement<typename W::F, has_momentum> element) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    element.update(i, weights, gradient);
}

}  // namespace

void CudaBackend::update_parameters(const OptimizerUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient, const auto element) {
    using W = decltype(weights);
    using G = std::remove_cvref_t<decltype(*gradient)>;
    using Element = std::remove_cvref_t<decltype(element)>;
    constexpr bool kPacks = std::is_same_v<Element, AdamWElement<typename W::F>>;
    constexpr int kPack = kPacks ? pack_of<typename W::Parameter, G, typename W::F>() : 1;
    void (*const kernel)(int64_t, W, const G*, Element) = update_kernel;
    launch(*this, kernel, blocks_for(n, kThreads * kPack), kThreads, n, weights, gradient, element);
  });
}

}  // namespace zl::ZEROLAB_CUDA
