// Updates of AdamW and SGD in one pass over parameter, gradient and state.
#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/optimizer_math.h"

namespace zl {
namespace {

void* address(const Tensor& t) { return t.address(); }

}  // namespace

void CpuBackend::adamw(const AdamWUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient) {
    using F = typename decltype(weights)::F;
    const AdamWElement<F> element(u, address(u.exp_avg), address(u.exp_avg_sq));
    in_parallel(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) element.update(i, weights, gradient);
    });
  });
}

void CpuBackend::sgd(const SgdUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient) {
    using F = typename decltype(weights)::F;
    const SgdElement<F> element(u, address(u.momentum_buffer));
    const bool has_momentum = u.momentum != 0;
    in_parallel(n, kGrain, [=](int64_t begin, int64_t end) {
      if (has_momentum) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) element.template update<true>(i, weights, gradient);
      } else {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) element.template update<false>(i, weights, gradient);
      }
    });
  });
}

}  // namespace zl
