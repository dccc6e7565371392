#include "optim/sgd.h"

#include "tensor/kernels.h"

namespace zl {

FlatSgd::FlatSgd(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                 std::vector<ParameterGroup> groups, const Swap& swap)
    : FlatOptimizer(memory, numel, parameters, config, std::move(groups), swap) {
  if (config_.momentum != 0) momentum_buffer_ = add_state("momentum_buffer");
}

void FlatSgd::step(const Range& range, double lr, float gradient_scale) {
  SgdUpdate u{.gradient_scale = gradient_scale,
              .lr = lr,
              .momentum = config_.momentum,
              .dampening = config_.dampening,
              .nesterov = config_.nesterov,
              .first_step = steps() == 1};
  for_each_part(range, [&](const Part& part) {
    u.parameter = part.of(range.parameters);
    u.gradient = part.of(range.gradients);
    if (config_.momentum != 0) u.momentum_buffer = part.of(range.state[momentum_buffer_]);
    u.master = master_of(range, part);
    u.weight_decay = part.group.weight_decay;
    kernel::sgd(u);
  });
}

}  // namespace zl
