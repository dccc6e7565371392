// A GPT with its parameters in one flat tensor, and its gradients in another.
#pragma once

#include "nn/formats/named_gpt.h"
#include "tensor/random.h"
#include "tests/autograd/workbench.h"

namespace zl {

struct FlatGpt {
  Workbench& bench;
  Gpt gpt;
  Tensor data, grad;
  UnitObserver no_observer;

  // GPT-2's initial values; `spread` multiplies their standard deviation.
  FlatGpt(Workbench& bench, GptConfig config, Dtype type, Recompute recompute = Recompute::none,
          double spread = 1)
      : bench(bench),
        gpt(config, recompute),
        data(Tensor::zeros(bench.memory, MemoryUse::parameter, {config.parameters()}, type)),
        grad(Tensor::zeros(bench.memory, MemoryUse::gradient, {config.parameters()}, type)) {
    int64_t begin = 0;
    for (Parameter& p : gpt.parameters()) {
      p.data = data.slice(begin, p.shape);
      p.grad = grad.slice(begin, p.shape);
      begin += p.numel();
      const double more = spread == 1 ? 0 : 0.1 * spread;  // norm weights and biases vary, too
      kernel::normal(
          {.seed = 5,
           .stream = fnv1a(p.name),
           .mean = p.initial_mean,
           .deviation = p.initial_deviation * spread + (p.initial_deviation == 0 ? more : 0)},
          0, p.data);
    }
  }
  double loss(const Tensor& ids, const Tensor& targets) {
    return values(gpt.loss(nullptr, no_observer, {ids, targets}).value())[0];
  }
  // Clears the gradients, then fills them.
  double loss_and_gradients(const Tensor& ids, const Tensor& targets) {
    kernel::fill(0, grad);
    Tape tape;
    const Var y = gpt.loss(&tape, no_observer, {ids, targets});
    Tensor one = activation_like(y.value(), {1});
    kernel::fill(1, one);
    tape.backward(y, std::move(one));
    return values(y.value())[0];
  }
};

}  // namespace zl
