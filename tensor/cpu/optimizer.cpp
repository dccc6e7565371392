// Updates of AdamW and SGD in one pass over parameter, gradient and state.
//
// An element's new value depends on that element alone, so updating a slice gives the bits of
// updating the whole: what zero1, zero2 and zero3 do to their shards is what ddp does to
// everything.
#include <cmath>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cpu/store.h"

namespace zl {
namespace {

// The weights that an update changes: parameters, or their master copy, whose rounded values become
// the parameters.
template <class P, bool has_master>
struct Weights {
  using F = Compute<P>;
  P* parameter;
  F* master;
  [[gnu::always_inline]] F operator[](int64_t i) const {
    if constexpr (has_master)
      return master[i];
    else
      return F(parameter[i]);
  }
  [[gnu::always_inline]] void set(int64_t i, F value) const {
    if constexpr (has_master) master[i] = value;
    store(parameter[i], value);
  }
};

// Calls loop(weights, gradients) with the storage types of both tensors.
template <class Update, class Loop>
void for_types_of(const Update& u, Loop&& loop) {
  for_float_type(u.parameter.dtype(), [&](auto parameter_type) {
    for_float_type(u.gradient.dtype(), [&](auto gradient_type) {
      using P = decltype(parameter_type);
      using G = decltype(gradient_type);
      P* parameter = u.parameter.template data<P>().data();
      const G* gradient = u.gradient.template data<G>().data();
      if (u.master.defined())
        loop(Weights<P, true>{parameter, u.master.template data<Compute<P>>().data()}, gradient);
      else
        loop(Weights<P, false>{parameter, nullptr}, gradient);
    });
  });
}

// What is the same for all elements, computed in double and rounded once.
template <class F>
struct AdamWConstants {
  F scale, keep, decay, beta1, rest1, beta2, rest2, step_size, root2, eps;
  explicit AdamWConstants(const AdamWUpdate& u)
      : scale(F(u.gradient_scale)),
        keep(F(u.decoupled ? 1 - u.lr * u.weight_decay : 1)),
        decay(F(u.decoupled ? 0 : u.weight_decay)),
        beta1(F(u.beta1)),
        rest1(F(1 - u.beta1)),
        beta2(F(u.beta2)),
        rest2(F(1 - u.beta2)),
        step_size(F(u.lr / u.correction1)),
        root2(F(std::sqrt(u.correction2))),
        eps(F(u.eps)) {}
};

}  // namespace

// The first moment is beta1 m + (1 - beta1) g, as in the paper. torch's lerp, m + (1 - beta1)(g -
// m), rounds differently in the last bit.
void CpuBackend::adamw(const AdamWUpdate& u) {
  for_types_of(u, [&](auto weights, const auto* gradient) {
    using F = typename decltype(weights)::F;
    const AdamWConstants<F> k(u);
    const int64_t n = u.parameter.numel();
    F* first_moment = u.first_moment.data<F>().data();
    F* second_moment = u.second_moment.data<F>().data();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      F p = weights[i];
      const F g = F(gradient[i]) * k.scale + k.decay * p;
      p *= k.keep;
      const F m = k.beta1 * first_moment[i] + k.rest1 * g;
      const F v = k.beta2 * second_moment[i] + k.rest2 * g * g;
      first_moment[i] = m;
      second_moment[i] = v;
      weights.set(i, p - k.step_size * m / (std::sqrt(v) / k.root2 + k.eps));
    }
  });
}

void CpuBackend::sgd(const SgdUpdate& u) {
  for_types_of(u, [&](auto weights, const auto* gradient) {
    using F = typename decltype(weights)::F;
    const F scale = F(u.gradient_scale), decay = F(u.weight_decay), lr = F(u.lr);
    const F momentum = F(u.momentum), rest = F(1 - u.dampening);
    const int64_t n = u.parameter.numel();
    if (u.momentum == 0) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const F p = weights[i];
        weights.set(i, p - lr * (F(gradient[i]) * scale + decay * p));
      }
      return;
    }
    F* buffer = u.momentum_buffer.data<F>().data();
    const bool first = u.first_step, nesterov = u.nesterov;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const F p = weights[i];
      const F g = F(gradient[i]) * scale + decay * p;
      // Selected, not multiplied by 0: before the first step the buffer may hold anything.
      const F b = first ? g : momentum * buffer[i] + rest * g;
      buffer[i] = b;
      weights.set(i, p - lr * (nesterov ? g + momentum * b : b));
    }
  });
}

}  // namespace zl
