// AdamW: Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2. SGD with momentum: Sutskever et
// al. 2013, section 2, as in torch.optim.SGD.
//
//   AdamW   m = beta1 m + (1 - beta1) g          SGD   b = momentum b + (1 - dampening) g
//           v = beta2 v + (1 - beta2) g^2              p = p - lr b
//           p = (1 - lr decay) p
//             - lr (m / c1) / (sqrt(v / c2) + eps),   c = 1 - beta^step
//
// An update of one element needs that element alone. tensor/optimizer_math.h has it for all three
// backends: it is short, and sharing it makes their bits equal.
#include "tensor/backend.h"
#include "tensor/optimizer_math.h"

namespace zl {
namespace {

void* address(const Tensor& t) { return t.defined() ? t.host_address() : nullptr; }

}  // namespace

void Backend::update_parameters(const OptimizerUpdate& u) {
  for_update_types(u, address, [&](auto weights, const auto* gradient, const auto& element) {
    for (int64_t i = 0; i < u.parameter.numel(); ++i) element.update(i, weights, gradient);
  });
}

}  // namespace zl
