// Values of all units in one flat vector, and where each element belongs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/partition.h"

namespace zl {

// All units in order, each with the padding of Partition.
using FlatValues = std::vector<float>;

// `units` must outlive it.
class FlatLayout {
 public:
  FlatLayout(const std::vector<Unit>& units, int ranks);

  struct Place {
    std::string unit, parameter;
    int64_t element;  // of the parameter
  };
  std::optional<Place> place(int64_t position) const;  // nothing for padding
  // "block0.up[17] of unit block0", or "the padding of unit block0".
  std::string text(int64_t position) const;

  // This rank's shards of all units in order.
  FlatValues shards(const FlatValues& full, int rank) const;
  // The position of element i of shards(…, rank) in the flat values.
  int64_t position(int rank, int64_t i) const;

  struct UnitRange {
    std::string name;
    int64_t begin, size;
    std::vector<Partition::Piece> pieces;
  };
  const std::vector<UnitRange>& units() const { return units_; }
  int64_t size() const { return size_; }  // [n] with padding
  int ranks() const { return ranks_; }

 private:
  std::vector<UnitRange> units_;
  int ranks_;
  int64_t size_ = 0;
};

// "block0.up[17] of unit block0 on rank 2 is 0.2519, must be 0.1259 (ratio 2.000); 71 of 900
// elements differ". rank < 0: of no rank. "" if all bits are the same.
std::string first_difference(const FlatLayout& layout, const FlatValues& values,
                             const FlatValues& expected, int rank);

}  // namespace zl
