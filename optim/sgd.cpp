#include "optim/sgd.h"

#include "tensor/kernels.h"

namespace zl {

FlatSgd::FlatSgd(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                 std::vector<ParameterGroup> groups)
    : FlatOptimizer(memory, numel, parameters, config, std::move(groups)) {
  if (config_.momentum != 0) momentum_buffer_ = add_state("momentum_buffer");
}

void FlatSgd::step(const Tensor& parameters, const Tensor& gradients, double lr,
                   float gradient_scale) {
  SgdUpdate u{.gradient_scale = gradient_scale,
              .lr = lr,
              .momentum = config_.momentum,
              .dampening = config_.dampening,
              .nesterov = config_.nesterov,
              .first_step = steps() == 1};
  for (const ParameterGroup& group : groups_) {
    if (group.frozen) continue;
    u.parameter = part(parameters, group);
    u.gradient = part(gradients, group);
    u.momentum_buffer = part(momentum_buffer_, group);
    u.master = part(master_, group);
    u.weight_decay = group.weight_decay;
    kernel::sgd(u);
  }
}

}  // namespace zl
