#include "stages/partition.h"

#include <algorithm>

namespace zl {

Partition::Partition(const Unit& unit, int ranks, int64_t shard_multiple, int shards)
    : parameters_(unit.parameters) {
  int64_t end = 0;
  for (const Parameter* p : parameters_) {
    offsets_.push_back(round_up(end, kAlignment));
    end = offsets_.back() + p->numel();
  }
  full_ = round_up(end, shard_multiple * ranks);
  shard_ = full_ / (shards > 0 ? shards : ranks);
}

std::vector<Partition::Piece> Partition::pieces(int64_t begin, int64_t count) const {
  std::vector<Piece> found;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t first = std::max(begin, offsets_[i]),
                  last = std::min(begin + count, offsets_[i] + parameters_[i]->numel());
    if (first < last)
      found.push_back({parameters_[i], first - offsets_[i], first - begin, last - first});
  }
  return found;
}

}  // namespace zl
