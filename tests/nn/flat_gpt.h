// A GPT whose parameters and gradients lie in one flat tensor each.
#pragma once

#include "nn/gpt.h"
#include "tensor/random.h"
#include "tests/autograd/workbench.h"

namespace zl {

struct FlatGpt {
  Workbench& bench;
  Gpt gpt;
  Tensor data, grad;
  UnitObserver nobody;

  // Initial values as GPT-2 has them; `spread` multiplies their deviation.
  FlatGpt(Workbench& bench, GptConfig config, Dtype type, bool recompute = false, double spread = 1)
      : bench(bench),
        gpt(config, recompute),
        data(Tensor::zeros(bench.memory, MemoryUse::parameter, {config.parameters()}, type)),
        grad(Tensor::zeros(bench.memory, MemoryUse::gradient, {config.parameters()}, type)) {
    int64_t begin = 0;
    for (Parameter& p : gpt.parameters()) {
      p.data = data.slice(begin, p.shape);
      p.grad = grad.slice(begin, p.shape);
      begin += p.numel();
      const double more = spread == 1 ? 0 : 0.1 * spread;  // gains and biases move too
      kernel::normal(
          {.seed = 5,
           .stream = fnv1a(p.name),
           .mean = p.initial_mean,
           .deviation = p.initial_deviation * spread + (p.initial_deviation == 0 ? more : 0)},
          0, p.data);
    }
  }
  double loss(const Tensor& ids, const Tensor& targets) {
    return values(gpt.loss(nullptr, nobody, ids, targets).value())[0];
  }
  // Clears the gradients, then fills them.
  double loss_and_gradients(const Tensor& ids, const Tensor& targets) {
    kernel::fill(0, grad);
    Tape tape;
    const Var y = gpt.loss(&tape, nobody, ids, targets);
    Tensor one = like(y.value(), {1});
    kernel::fill(1, one);
    tape.backward(y, std::move(one));
    return values(y.value())[0];
  }
};

}  // namespace zl
