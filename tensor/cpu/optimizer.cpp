// Updates of AdamW and SGD in one pass over parameter, gradient and state.
#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/optimizer_math.h"

namespace zl {
namespace {

void* address(const Tensor& t) { return t.address(); }

}  // namespace

void CpuBackend::update_parameters(const OptimizerUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_update_types(u, address, [&](auto weights, const auto* gradient, const auto element) {
    in_parallel(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) element.update(i, weights, gradient);
    });
  });
}

}  // namespace zl
