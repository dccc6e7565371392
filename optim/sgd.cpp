#include "optim/sgd.h"

#include "tensor/kernels.h"

namespace zl {

FlatSgd::FlatSgd(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config, std::vector<DecayRange> decay)
    : FlatOptimizer(memory, numel, parameters, config, std::move(decay)) {
  if (config_.momentum != 0) momentum_buffer_ = Tensor::zeros(memory, MemoryUse::optimizer_state, {numel}, state_dtype());
}

void FlatSgd::step(const Tensor& parameters, const Tensor& gradients, double lr, float gradient_scale) {
  SgdUpdate u{.gradient_scale = gradient_scale, .lr = lr, .momentum = config_.momentum, .dampening = config_.dampening,
              .nesterov = config_.nesterov, .first_step = steps() == 1};
  for (const DecayRange& range : decay_) {
    u.parameter = part(parameters, range);
    u.gradient = part(gradients, range);
    u.momentum_buffer = part(momentum_buffer_, range);
    u.master = part(master_, range);
    u.weight_decay = range.weight_decay;
    kernel::sgd(u);
  }
}

}  // namespace zl
