#include "stages/numerics/nonfinite.h"

#include <algorithm>
#include <cmath>

#include "stages/numerics/rank_numbers.h"

namespace zl {

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
  squares_on_host_.push_back(kernel::start_download<double>(squares_));
  squares_ = {};
}

// This rank's result, encoded in one number. k > 0: its own gradient of parameter k - 1 is not
// finite; k < 0: that of parameter -k - 1 in its shard of the sums; 0: neither.
double NonfiniteSearch::code() {
  for (kernel::Download<double>& micro_batch : squares_on_host_) {
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
      if (std::isfinite(kernel::read(square, 0))) continue;
      const auto& all = stage_.parameters();
      return -double(std::ranges::find(all, piece.parameter) - all.begin() + 1);
    }
  }
  return 0;
}

std::optional<NonfiniteGradient> NonfiniteSearch::find() {
  const std::vector<double> codes = RankNumbers(stage_.comm(), stage_.memory(), code(),
                                                {"gradient that is not finite", Purpose::check})
                                        .wait();
  for (const double sign : {1.0, -1.0})  // gradients of one rank before sums
    for (size_t rank = 0; rank < codes.size(); ++rank)
      if (const double k = sign * codes[rank]; k > 0)
        return NonfiniteGradient{int(rank), stage_.parameters()[size_t(k) - 1]->name, sign < 0};
  return std::nullopt;
}

}  // namespace zl
