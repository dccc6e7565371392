#include <cmath>

#include "optim/flat_optimizer.h"
#include "tensor/kernels.h"

namespace zl {

void FlatOptimizer::adamw(const Range& range, double lr, float gradient_scale) const {
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
  const Tensor& exp_avg = range.state[master_.defined()];
  const Tensor& exp_avg_sq = range.state[master_.defined() + 1];
  for_each_part(range, [&](const Part& part) {
    u.parameter = part.of(range.parameters);
    u.gradient = part.of(range.gradients);
    u.exp_avg = part.of(exp_avg);
    u.exp_avg_sq = part.of(exp_avg_sq);
    u.master = master_of(range, part);
    u.weight_decay = part.group.weight_decay;
    kernel::adamw(u);
  });
}

}  // namespace zl
