// Where each parameter lies in the flat memory of its unit, and which part is whose.
//
// Invariants. (1) Parameters stand in order, each at a multiple of 16 elements (64 bytes in fp32).
// (2) The unit is padded with zeros to whole = 16 * ranks * k. (3) Rank r owns [r * shard, (r + 1)
// * shard), shard = whole / ranks. (4) Padding is zero in every buffer and never reaches a norm or
// a file. All four stages use the same partition.
#pragma once

#include <vector>

#include "nn/unit.h"

namespace zl {

class Partition {
 public:
  static constexpr int64_t kAlignment = 16;  // [n]

  Partition() = default;
  Partition(const Unit& unit, int ranks);

  int64_t full() const { return full_; }                                  // [n] with padding
  int64_t shard() const { return shard_; }                                // [n]
  int64_t offset(size_t parameter) const { return offsets_[parameter]; }  // [n] in the whole

  // The part of one parameter that lies in a range of the whole.
  struct Piece {
    Parameter* parameter;
    int64_t first;  // element of the parameter
    int64_t at;     // element of the range
    int64_t count;
  };
  // Pieces of [begin, begin + count) of the whole, in order; what they leave out is padding.
  std::vector<Piece> pieces(int64_t begin, int64_t count) const;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> offsets_;
  int64_t full_ = 0, shard_ = 0;
};

}  // namespace zl
