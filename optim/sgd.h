// SGD on a flat range, with momentum and Nesterov momentum as in torch.optim.SGD: Sutskever et al.
// 2013, "On the importance of initialization and momentum in deep learning", section 2.
#pragma once

#include "optim/flat_optimizer.h"

namespace zl {

class FlatSgd final : public FlatOptimizer {
 public:
  FlatSgd(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
          std::vector<ParameterGroup> groups, const Swap& swap);

 private:
  void step(const Range& range, double lr, float gradient_scale) override;
  size_t momentum_buffer_ = 0;  // its number, if there is momentum
};

}  // namespace zl
