// The arithmetic of one element of an optimizer update. The kernels of the CPU and of the GPU share
// it, and so give the same bits: both are compiled without contracting a product and a sum into one
// rounding (-ffp-contract=off, --fmad=false), and square root and division are IEEE's.
//
// An element's new value depends on that element alone. So updating a shard (zero1, zero2, zero3)
// gives the bits of the same slice of a full update (ddp).
#pragma once

#include <cmath>

#include "tensor/backend.h"

namespace zl {

// The weights that an update changes: the parameters, or their master copy. The parameters are then
// the rounding of the master copy.
template <class P, bool has_master>
struct UpdatedWeights {
  using Parameter = P;
  using F = Compute<P>;
  static constexpr bool kHasMaster = has_master;
  P* parameter;
  F* master;
  [[gnu::always_inline]] ZL_DEVICE F operator[](int64_t i) const {
    if constexpr (has_master)
      return master[i];
    else
      return F(parameter[i]);
  }
  [[gnu::always_inline]] ZL_DEVICE void set(int64_t i, F value) const {
    if constexpr (has_master) master[i] = value;
    store(parameter[i], value);
  }
};

// AdamW. The constants are computed in double on the host and rounded once.
//
// The first moment is beta1 m + (1 - beta1) g, as in the paper. torch's lerp rounds differently in
// the last bit: m + (1 - beta1)(g - m).
template <class F>
struct AdamWElement {
  F *exp_avg, *exp_avg_sq;
  F scale, keep, decay, beta1, rest1, beta2, rest2, step_size, root2, eps;

  AdamWElement(const OptimizerUpdate& u, void* exp_avg, void* exp_avg_sq)
      : exp_avg(static_cast<F*>(exp_avg)), exp_avg_sq(static_cast<F*>(exp_avg_sq)) {
    const OptimizerConfig& c = u.config;
    const auto correction = [&](double beta) {
      return c.bias_correction ? 1 - std::pow(beta, double(u.step)) : 1;
    };
    scale = F(u.gradient_scale);
    keep = F(c.decoupled ? 1 - c.lr * c.weight_decay : 1);
    decay = F(c.decoupled ? 0 : c.weight_decay);
    beta1 = F(c.beta1), rest1 = F(1 - c.beta1);
    beta2 = F(c.beta2), rest2 = F(1 - c.beta2);
    step_size = F(c.lr / correction(c.beta1));
    root2 = F(std::sqrt(correction(c.beta2)));
    eps = F(c.eps);
  }

  template <class W, class G>
  [[gnu::always_inline]] ZL_DEVICE void update(int64_t i, const W& weights,
                                               const G* gradient) const {
    F p = weights[i];
    const F g = F(gradient[i]) * scale + decay * p;
    p *= keep;
    const F m = beta1 * exp_avg[i] + rest1 * g;
    const F v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weights.set(i, p - step_size * m / (std::sqrt(v) / root2 + eps));
  }
};

template <class F, bool has_momentum>
struct SgdElement {
  F* buffer;
  F scale, decay, lr, momentum, rest;
  bool first, nesterov;

  SgdElement(const OptimizerUpdate& u, void* buffer)
      : buffer(static_cast<F*>(buffer)),
        scale(F(u.gradient_scale)),
        decay(F(u.config.weight_decay)),
        lr(F(u.config.lr)),
        momentum(F(u.config.momentum)),
        rest(F(1 - u.config.dampening)),
        first(u.step == 1),
        nesterov(u.config.nesterov) {}

  template <class W, class G>
  [[gnu::always_inline]] ZL_DEVICE void update(int64_t i, const W& weights,
                                               const G* gradient) const {
    const F p = weights[i];
    const F g = F(gradient[i]) * scale + decay * p;
    if constexpr (has_momentum) {
      // A selection, not a multiplication by 0: before the first step the buffer may hold anything.
      const F b = first ? g : momentum * buffer[i] + rest * g;
      buffer[i] = b;
      weights.set(i, p - lr * (nesterov ? g + momentum * b : b));
    } else {
      weights.set(i, p - lr * g);
    }
  }
};

// Calls run(weights, gradients, element) with the storage types of the update's tensors and the
// optimizer's arithmetic. `address` gives the address of a tensor's elements as the kernel uses it.
template <class Address, class Run>
void for_update_types(const OptimizerUpdate& u, Address address, Run run) {
  const auto with = [&](auto weights, const auto* gradient) {
    using F = typename decltype(weights)::F;
    if (u.config.kind == OptimizerKind::adamw)
      run(weights, gradient, AdamWElement<F>(u, address(u.moment), address(u.exp_avg_sq)));
    else if (u.config.momentum != 0)
      run(weights, gradient, SgdElement<F, true>(u, address(u.moment)));
    else
      run(weights, gradient, SgdElement<F, false>(u, nullptr));
  };
  for_float_types(u.parameter.dtype(), u.gradient.dtype(), [&]<class P, class G>(P, G) {
    P* const parameter = static_cast<P*>(address(u.parameter));
    const G* const gradient = static_cast<const G*>(address(u.gradient));
    auto* const master = static_cast<Compute<P>*>(address(u.master));
    if (u.master.defined())
      with(UpdatedWeights<P, true>{parameter, master}, gradient);
    else
      with(UpdatedWeights<P, false>{parameter, nullptr}, gradient);
  });
}

}  // namespace zl
