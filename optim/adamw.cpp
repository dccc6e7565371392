#include "optim/adamw.h"

#include <cmath>

#include "tensor/kernels.h"

namespace zl {

FlatAdamW::FlatAdamW(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
                     std::vector<ParameterGroup> groups, const Swap& swap)
    : FlatOptimizer(memory, numel, parameters, config, std::move(groups), swap),
      exp_avg_(add_state("exp_avg")),
      exp_avg_sq_(add_state("exp_avg_sq")) {}

void FlatAdamW::step(const Range& range, double lr, float gradient_scale) {
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
  for_each_part(range, [&](const Part& part) {
    u.parameter = part.of(range.parameters);
    u.gradient = part.of(range.gradients);
    u.exp_avg = part.of(range.state[exp_avg_]);
    u.exp_avg_sq = part.of(range.state[exp_avg_sq_]);
    u.master = master_of(range, part);
    u.weight_decay = part.group.weight_decay;
    kernel::adamw(u);
  });
}

}  // namespace zl
