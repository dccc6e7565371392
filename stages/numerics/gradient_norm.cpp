#include "stages/numerics/gradient_norm.h"

#include <cmath>

#include "stages/numerics/rank_numbers.h"

namespace zl {

double gradient_norm(Stage& stage) {
  const Tensor sum = Tensor::zeros(stage.memory(), MemoryUse::workspace, {1}, Dtype::f64);
  for (const UnitState& u : stage.units()) {
    const Tensor shard = stage.gradient_shard(u);
    const Tensor square = Tensor::empty(shard.memory(), MemoryUse::workspace, {1}, Dtype::f64);
    kernel::sum_of_squares(shard, square);
    kernel::accumulate(square, sum);
  }
  RankNumbers squares(stage.comm(), stage.memory(), sum, {"gradient norm", Purpose::norm},
                      1.0 / stage.comm().size());  // a dry run's norm is 1, so that it updates
  return std::sqrt(squares.wait_for_sum());
}

}  // namespace zl
