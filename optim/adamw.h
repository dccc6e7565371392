// AdamW on a flat range: Loshchilov & Hutter 2019 (arXiv:1711.05101), algorithm 2.
#pragma once

#include "optim/flat_optimizer.h"

namespace zl {

class FlatAdamW final : public FlatOptimizer {
 public:
  FlatAdamW(Memory& memory, int64_t numel, Dtype parameters, const OptimizerConfig& config,
            std::vector<ParameterGroup> groups, const Swap& swap);

 private:
  void step(const Range& range, double lr, float gradient_scale) override;
  size_t exp_avg_, exp_avg_sq_;  // numbers of the first and the second moment
};

}  // namespace zl
