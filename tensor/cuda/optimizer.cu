// Updates of AdamW and SGD in one pass over parameter, gradient and state: one thread per element.
//
// An element's new value depends on that element alone, so updating a slice gives the bits of
// updating the whole: what zero1, zero2 and zero3 do to their shards is what ddp does to
// everything.
//
// The arithmetic and its order are those of cpu/optimizer.cpp, and so are the bits: this file is
// compiled with
// --fmad=false, since a fused multiply-add rounds once where the CPU rounds twice. Square root and
// division are IEEE's unless --use_fast_math says otherwise.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// The weights that an update changes: parameters, or their master copy, whose rounded values become
// the parameters.
template <class P, bool has_master>
struct Weights {
  using F = Compute<P>;
  P* parameter;
  F* master;
  __device__ F operator[](int64_t i) const {
    if constexpr (has_master)
      return master[i];
    else
      return F(parameter[i]);
  }
  __device__ void set(int64_t i, F value) const {
    if constexpr (has_master) master[i] = value;
    parameter[i] = P(value);
  }
};

// Calls run(weights, gradients) with the storage types of both tensors.
template <class Update, class Run>
void for_types_of(const Update& u, Run&& run) {
  for_float_type(u.parameter.dtype(), [&](auto parameter_type) {
    for_float_type(u.gradient.dtype(), [&](auto gradient_type) {
      using P = decltype(parameter_type);
      using G = decltype(gradient_type);
      P* parameter = elements<P>(u.parameter);
      const G* gradient = elements<G>(u.gradient);
      if (u.master.defined())
        run(Weights<P, true>{parameter, elements<Compute<P>>(u.master)}, gradient);
      else
        run(Weights<P, false>{parameter, nullptr}, gradient);
    });
  });
}

// The moments, and what is the same for all elements, computed in double on the host and rounded
// once.
template <class F>
struct AdamW {
  F *first_moment, *second_moment;
  F scale, keep, decay, beta1, rest1, beta2, rest2, step_size, root2, eps;
  explicit AdamW(const AdamWUpdate& u)
      : first_moment(elements<F>(u.first_moment)),
        second_moment(elements<F>(u.second_moment)),
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
};

// The first moment is beta1 m + (1 - beta1) g, as in the paper. torch's lerp, m + (1 - beta1)(g -
// m), rounds differently in the last bit.
template <class W, class G>
__global__ void adamw_kernel(int64_t n, W weights, const G* gradient, AdamW<typename W::F> k) {
  using F = typename W::F;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    F p = weights[i];
    const F g = F(gradient[i]) * k.scale + k.decay * p;
    p *= k.keep;
    const F m = k.beta1 * k.first_moment[i] + k.rest1 * g;
    const F v = k.beta2 * k.second_moment[i] + k.rest2 * g * g;
    k.first_moment[i] = m;
    k.second_moment[i] = v;
    weights.set(i, p - k.step_size * m / (std::sqrt(v) / k.root2 + k.eps));
  }
}

template <class F>
struct Sgd {
  F* buffer;  // null without momentum
  F scale, decay, lr, momentum, rest;
  bool first, nesterov;
  explicit Sgd(const SgdUpdate& u)
      : buffer(u.momentum == 0 ? nullptr : elements<F>(u.momentum_buffer)),
        scale(F(u.gradient_scale)),
        decay(F(u.weight_decay)),
        lr(F(u.lr)),
        momentum(F(u.momentum)),
        rest(F(1 - u.dampening)),
        first(u.first_step),
        nesterov(u.nesterov) {}
};

template <class W, class G>
__global__ void sgd_kernel(int64_t n, W weights, const G* gradient, Sgd<typename W::F> k) {
  using F = typename W::F;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const F p = weights[i];
    const F g = F(gradient[i]) * k.scale + k.decay * p;
    if (!k.buffer) {
      weights.set(i, p - k.lr * g);
      continue;
    }
    // Selected, not multiplied by 0: before the first step the buffer may hold anything.
    const F b = k.first ? g : k.momentum * k.buffer[i] + k.rest * g;
    k.buffer[i] = b;
    weights.set(i, p - k.lr * (k.nesterov ? g + k.momentum * b : b));
  }
}

}  // namespace

void CudaBackend::adamw(const AdamWUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_types_of(u, [&](auto weights, auto* gradient) {
    using W = decltype(weights);
    using G = std::remove_cvref_t<decltype(*gradient)>;
    launch(*this, adamw_kernel<W, G>, blocks_for(n), kThreads, n, weights, gradient,
           AdamW<typename W::F>(u));
  });
}

void CudaBackend::sgd(const SgdUpdate& u) {
  const int64_t n = u.parameter.numel();
  for_types_of(u, [&](auto weights, auto* gradient) {
    using W = decltype(weights);
    using G = std::remove_cvref_t<decltype(*gradient)>;
    launch(*this, sgd_kernel<W, G>, blocks_for(n), kThreads, n, weights, gradient,
           Sgd<typename W::F>(u));
  });
}

}  // namespace zl::ZEROLAB_CUDA
