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
#include "tensor/optimizer_math.h"
#include "tensor/reference/kernel_call.h"

namespace zl {
namespace {

void* address(const Tensor& t) { return t.defined() ? t.host_address() : nullptr; }

}  // namespace

void kernel::update_parameters(const OptimizerUpdate& u) {
  const char* const what = name(u.config.kind);
  const bool adamw = u.config.kind == OptimizerKind::adamw;
  const int64_t n = u.parameter.numel();
  if (u.gradient.numel() != n)
    refuse(what, ": ", u.gradient.numel(), " gradients for ", n, " parameters");
  const auto require_state = [&](const char* which, const Tensor& state, bool needed) {
    if (!state.defined() && needed) refuse(what, " needs ", which);
    if (state.defined()) require_is(what, which, state, n, compute_type(u.parameter.dtype()));
  };
  require_state(adamw ? "exp_avg" : "the momentum buffer", u.moment,
                adamw || u.config.momentum != 0);
  require_state("exp_avg_sq", u.exp_avg_sq, adamw);
  require_state("the master copy", u.master, false);
  const Tensor &p = u.parameter, &g = u.gradient, &m = u.moment, &v = u.exp_avg_sq,
               &master = u.master.defined() ? u.master : p;
  Backend& backend = adamw ? recorded(what, p, 16 * n, {&p, &g, &m, &m, &v, &v, &master, &master})
                           : recorded(what, p, 6 * n, {&p, &p, &g});
  backend.update_parameters(u);
}

void Backend::update_parameters(const OptimizerUpdate& u) {
  for_update_types(u, address, [&](auto weights, const auto* gradient, const auto& element) {
    for (int64_t i = 0; i < u.parameter.numel(); ++i) element.update(i, weights, gradient);
  });
}

}  // namespace zl
