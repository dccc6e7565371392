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

// Calls run(weights, gradients) with the storage types of the update's tensors. `address` gives the
// address of a tensor's elements as the kernel uses it.
template <class Update, class Address, class Run>
void for_update_types(const Update& u, Address address, Run run) {
  for_float_type(u.parameter.dtype(), [&](auto parameter_type) {
    for_float_type(u.gradient.dtype(), [&](auto gradient_type) {
      using P = decltype(parameter_type);
      P* const parameter = static_cast<P*>(address(u.parameter));
      const auto* const gradient = static_cast<const decltype(gradient_type)*>(address(u.gradient));
      if (u.master.defined())
        run(UpdatedWeights<P, true>{parameter, static_cast<Compute<P>*>(address(u.master))},
            gradient);
      else
        run(UpdatedWeights<P, false>{parameter, nullptr}, gradient);
    });
  });
}

// AdamW. The constants are computed in double on the host and rounded once.
//
// The first moment is beta1 m + (1 - beta1) g, as in the paper. torch's lerp rounds differently in
// the last bit: m + (1 - beta1)(g - m).
template <class F>
struct AdamWElement {
  F *exp_avg, *exp_avg_sq;
  F scale, keep, decay, beta1, rest1, beta2, rest2, step_size, root2, eps;

  AdamWElement(const AdamWUpdate& u, void* exp_avg, void* exp_avg_sq)
      : exp_avg(static_cast<F*>(exp_avg)),
        exp_avg_sq(static_cast<F*>(exp_avg_sq)),
        scale(F(u.gradient_scale)),
        keep(F(u.decoupled ? 1 - u.lr * u.weight_decay : 1)),
        decay(F(u.decoupled ? 0 : u.weight_decay)),
        beta1(F(u.beta1)),
        rest1(F(1 - u.beta1)),
        beta2(F(u.beta2)),
        rest2(F(1 - u.beta2)),
        step_size(F(u.lr / u.correction1)),
        root2(F(std::sqrt(u.correction2))),
        eps(F(u.eps)) {}

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

template <class F>
struct SgdElement {
  F* buffer;  // unused without momentum
  F scale, decay, lr, momentum, rest;
  bool first, nesterov;

  SgdElement(const SgdUpdate& u, void* buffer)
      : buffer(static_cast<F*>(buffer)),
        scale(F(u.gradient_scale)),
        decay(F(u.weight_decay)),
        lr(F(u.lr)),
        momentum(F(u.momentum)),
        rest(F(1 - u.dampening)),
        first(u.first_step),
        nesterov(u.nesterov) {}

  template <bool has_momentum, class W, class G>
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

}  // namespace zl
