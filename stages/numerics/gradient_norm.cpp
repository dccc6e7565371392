#include "stages/numerics/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zl {

// ---- numbers of each rank --------------------------------------------------------------------

namespace {

Tensor of_all_ranks(Communicator& comm, Memory& memory, int64_t each) {
  return Tensor::empty(memory, MemoryUse::communication, {each * comm.size()}, Dtype::f64);
}
Tensor of_this_rank(const Communicator& comm, const Tensor& all) {
  const int64_t each = all.numel() / comm.size();
  return all.slice(comm.rank() * each, {each});
}

}  // namespace

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, const Tensor& mine, CallName name)
    : all_(of_all_ranks(comm, memory, mine.numel())) {
  kernel::copy(mine, of_this_rank(comm, all_));
  gathered_ = comm.all_gather(all_, name);
}

RankNumbers::RankNumbers(Communicator& comm, Memory& memory, std::span<const double> mine,
                         CallName name)
    : all_(of_all_ranks(comm, memory, int64_t(mine.size()))) {
  kernel::upload<double>(mine, of_this_rank(comm, all_));
  gathered_ = comm.all_gather(all_, name);
}

void RankNumbers::start_download() {
  if (!all_.defined()) return;
  gathered_.wait();
  numbers_ = kernel::start_download(all_);
  all_ = {};
}

const std::vector<double>& RankNumbers::wait() {
  start_download();
  return numbers_.wait();
}

double RankNumbers::wait_for_sum() {
  const std::vector<double>& numbers = wait();
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

// ---- the norm --------------------------------------------------------------------------------

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
  RankNumbers numbers(stage.comm(), stage.memory(), squares, {"gradient norm", Purpose::norm});
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
  RankNumbers squares(group, stage.memory(), sum, {"gradient norm", Purpose::norm});
  return std::sqrt(squares.wait_for_sum());
}

// ---- the search ------------------------------------------------------------------------------

void NonfiniteSearch::begin_micro_batch() {
  const int64_t parameters = int64_t(stage_.parameters().size());
  squares_ = Tensor::zeros(stage_.memory(), MemoryUse::workspace, {parameters}, Dtype::f64);
}

void NonfiniteSearch::check(const UnitState& u) {
  std::vector<Tensor> gradients;
  for (const Parameter* p : u.unit->parameters) gradients.push_back(p->grad);
  const int64_t count = int64_t(gradients.size());
  kernel::sums_of_squares(gradients, squares_.slice(u.first_parameter, {count}));
}

void NonfiniteSearch::end_micro_batch() {
  squares_on_host_.push_back(kernel::start_download(squares_));
  squares_ = {};
}

// This rank's result, encoded in one number. k > 0: its own gradient of parameter k - 1 is not
// finite; k < 0: that of parameter -k - 1 in its shard of the sums; 0: neither.
double NonfiniteSearch::code() {
  for (kernel::Download& micro_batch : squares_on_host_) {
    const std::vector<double>& squares = micro_batch.wait();
    const auto first = std::ranges::find_if_not(squares, [](double s) { return std::isfinite(s); });
    if (first != squares.end()) return double(first - squares.begin() + 1);
  }
  for (const UnitState& u : stage_.units()) {
    const Tensor shard = stage_.gradient_shard(u);
    const int64_t begin = stage_.shard_group().rank() * u.partition.shard();
    for (const Partition::Piece& piece : u.partition.pieces(begin, shard.numel())) {
      const Tensor square = Tensor::empty(shard.memory(), MemoryUse::workspace, {1}, Dtype::f64);
      kernel::sum_of_squares(shard.slice(piece.at, {piece.count}), square);
      if (std::isfinite(kernel::read(square))) continue;
      const auto& all = stage_.parameters();
      return -double(std::ranges::find(all, piece.parameter) - all.begin() + 1);
    }
  }
  return 0;
}

std::optional<NonfiniteGradient> NonfiniteSearch::find() {
  const std::vector<double> codes = RankNumbers(stage_.comm(), stage_.memory(), std::vector{code()},
                                                {"gradient that is not finite", Purpose::check})
                                        .wait();
  for (const double sign : {1.0, -1.0})  // gradients of one rank before sums
    for (size_t rank = 0; rank < codes.size(); ++rank)
      if (const double k = sign * codes[rank]; k > 0)
        return NonfiniteGradient{int(rank), stage_.parameters()[size_t(k) - 1]->name, sign < 0};
  return std::nullopt;
}

}  // namespace zl
