#include "stages/numerics/gradient_norm.h"

#include <cmath>

#include "stages/numerics/rank_numbers.h"

namespace zl {

namespace {

// [n] of this rank's shard of a unit.
int64_t blocks_of(const UnitState& u) { return u.partition.shard() / kernel::kSquaresBlock; }

// A shard is a whole number of blocks. So the blocks of a unit are those of the unsharded unit, and
// adding them one after another gives the same sum for every number of ranks.
double sum_over_blocks(Stage& stage) {
  const int ranks = stage.comm().size();
  int64_t blocks = 0;
  for (const UnitState& u : stage.units()) blocks += blocks_of(u);
  Tensor squares = Tensor::empty(stage.memory(), MemoryUse::workspace, {blocks}, Dtype::f64);
  int64_t at = 0;
  for (const UnitState& u : stage.units()) {
    const Tensor shard = stage.gradient_shard(u);
    const Tensor of_unit =
        Tensor::empty(shard.memory(), MemoryUse::workspace, {blocks_of(u)}, Dtype::f64);
    kernel::squares_of_blocks(shard, of_unit);
    kernel::copy(of_unit, squares.slice(at, {blocks_of(u)}));
    at += blocks_of(u);
  }
  RankNumbers numbers(stage.comm(), stage.memory(), squares, {"gradient norm", Purpose::norm},
                      1.0 / double(blocks * ranks));
  squares = {};
  const std::vector<double>& all = numbers.wait();
  double sum = 0;
  int64_t first = 0;
  for (const UnitState& u : stage.units()) {
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t b = 0; b < blocks_of(u); ++b) sum += all[size_t(r * blocks + first + b)];
    first += blocks_of(u);
  }
  return sum;
}

}  // namespace

double gradient_norm(Stage& stage) {
  if (stage.options().reproducible) return std::sqrt(sum_over_blocks(stage));
  std::vector<Tensor> shards;
  for (const UnitState& u : stage.units()) shards.push_back(stage.gradient_shard(u));
  const int64_t units = int64_t(shards.size());
  Memory& memory = shards[0].memory();  // the host's if gradients are offloaded
  const Tensor of_units = Tensor::empty(memory, MemoryUse::workspace, {units, 1}, Dtype::f64);
  kernel::sums_of_squares(shards, of_units);
  const Tensor sum = Tensor::zeros(memory, MemoryUse::workspace, {1}, Dtype::f64);
  kernel::sum_rows(of_units, sum);
  Communicator& group = stage.shard_group();  // each shard counts once, also if others hold it too
  RankNumbers squares(group, stage.memory(), sum, {"gradient norm", Purpose::norm},
                      1.0 / group.size());  // a dry run's norm is 1, so that it updates
  return std::sqrt(squares.wait_for_sum());
}

}  // namespace zl
