// The position of each parameter in the flat memory of its unit, and the shard of each rank.
//
// Invariants. (1) Parameters are in order, each begins at a multiple of 16 elements (64 bytes in
// fp32). (2) The unit is padded with zeros to full = 16 * ranks * k elements, or in reproducible
// mode to 1,024 * ranks * k. (3) Rank r owns
// [r * shard, (r + 1) * shard), shard = full / ranks. (4) Padding is zero in every buffer and never
// reaches a norm or a file. All four stages use the same partition; where groups of ranks hold all
// shards each, a unit is padded alike and shard = full / ranks of a group.
#pragma once

#include <vector>

#include "nn/unit.h"

namespace zl {

class Partition {
 public:
  static constexpr int64_t kAlignment = 16;  // [n]

  Partition() = default;
  // `shard_multiple` [n]: of a shard. `shards`: how many; 0: one per rank.
  Partition(const Unit& unit, int ranks, int64_t shard_multiple = kAlignment, int shards = 0);

  int64_t full() const { return full_; }                                  // [n] with padding
  int64_t shard() const { return shard_; }                                // [n]
  int64_t offset(size_t parameter) const { return offsets_[parameter]; }  // [n] in the full unit
  size_t parameters() const { return parameters_.size(); }

  // The part of one parameter that is in a range of the full unit.
  struct Piece {
    Parameter* parameter;
    int64_t first;  // element of the parameter
    int64_t at;     // element of the range
    int64_t count;
  };
  // The pieces of [begin, begin + count) of the full unit, in order. The rest is padding.
  std::vector<Piece> pieces(int64_t begin, int64_t count) const;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> offsets_;
  int64_t full_ = 0, shard_ = 0;
};

}  // namespace zl
