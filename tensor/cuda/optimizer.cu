// Updates of AdamW and SGD in one pass over parameter, gradient and state: one thread per element.
// Compiled with --fmad=false, for the bits of the CPU (tensor/optimizer_math.h).
#include "tensor/cuda/launch.h"
#include "tensor/optimizer_math.h"

namespace zl::ZEROLAB_CUDA {
namespace {

void* address(const Tensor& t) { return device_address(t.address()); }

template <class W, class G>
__global__ void adamw_kernel(int64_t n, W weights, const G* gradient,
                             AdamWElement<typename W::F> element) {
  for (int64_t i = first_element(); i < n; i += element_stride())
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
    launch(*this, adamw_kernel<W, G>, blocks_for(n), kThreads, n, weights, gradient,
           AdamWElement<typename W::F>(u, address(u.exp_avg), address(u.exp_avg_sq)));
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
