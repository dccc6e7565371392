#include "optim/flat_optimizer.h"
#include "tensor/kernels.h"

namespace zl {

void FlatOptimizer::sgd(const Range& range, double lr, float gradient_scale) const {
  SgdUpdate u{.gradient_scale = gradient_scale,
              .lr = lr,
              .momentum = config_.momentum,
              .dampening = config_.dampening,
              .nesterov = config_.nesterov,
              .first_step = steps() == 1};
  for_each_part(range, [&](const Part& part) {
    u.parameter = part.of(range.parameters);
    u.gradient = part.of(range.gradients);
    if (config_.momentum != 0) u.momentum_buffer = part.of(range.state.back());
    u.master = master_of(range, part);
    u.weight_decay = part.group.weight_decay;
    kernel::sgd(u);
  });
}

}  // namespace zl
