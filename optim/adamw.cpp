#include "optim/adamw.h"

#include <cmath>

#include "tensor/kernels.h"

namespace zl {

FlatAdamW::FlatAdamW(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                     std::vector<ParameterGroup> groups)
    : FlatOptimizer(memory, numel, parameters, config, std::move(groups)),
      exp_avg_(add_state("exp_avg")),
      exp_avg_sq_(add_state("exp_avg_sq")) {}

void FlatAdamW::step(const Tensor& parameters, const Tensor& gradients, double lr,
                     float gradient_scale) {
  AdamWUpdate u{.gradient_scale = gradient_scale,
                .lr = lr,
                .beta1 = config_.beta1,
                .beta2 = config_.beta2,
                .eps = config_.eps,
                .decoupled = config_.decoupled};
  if (config_.bias_correction) {
    u.correction1 = 1 - std::pow(config_.beta1, double(steps()));
    u.correction2 = 1 - std::pow(config_.beta2, double(steps()));
  }
  for (const ParameterGroup& group : groups_) {
    if (group.frozen) continue;
    u.parameter = part(parameters, group);
    u.gradient = part(gradients, group);
    u.exp_avg = part(exp_avg_, group);
    u.exp_avg_sq = part(exp_avg_sq_, group);
    u.master = part(master_, group);
    u.weight_decay = group.weight_decay;
    kernel::adamw(u);
  }
}

}  // namespace zl
