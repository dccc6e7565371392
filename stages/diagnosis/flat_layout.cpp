#include "stages/diagnosis/flat_layout.h"

#include <bit>
#include <cstdio>
#include <string_view>

#include "tensor/error.h"

namespace zl {

FlatLayout::FlatLayout(const std::vector<Unit>& units, int ranks) : ranks_(ranks) {
  for (const Unit& unit : units) {
    const Partition partition(unit, ranks);
    units_.push_back({unit.name, size_, partition.full(), partition.pieces(0, partition.full())});
    size_ += partition.full();
  }
}

std::optional<FlatLayout::Place> FlatLayout::place(int64_t position) const {
  for (const UnitRange& unit : units_)
    for (const Partition::Piece& piece : unit.pieces) {
      const int64_t i = position - unit.begin - piece.at;
      if (i >= 0 && i < piece.count) return Place{unit.name, piece.parameter->name, i};
    }
  return std::nullopt;
}

std::string FlatLayout::text(int64_t position) const {
  if (const auto at = place(position))
    return str(at->parameter, "[", at->element, "] of unit ", at->unit);
  for (const UnitRange& unit : units_)
    if (position < unit.begin + unit.size) return "the padding of unit " + unit.name;
  return "an element after the last unit";
}

FlatValues FlatLayout::shards(const FlatValues& full, int rank) const {
  FlatValues values;
  for (const UnitRange& unit : units_) {
    const int64_t n = unit.size / ranks_, begin = unit.begin + rank * n;
    values.insert(values.end(), full.begin() + begin, full.begin() + begin + n);
  }
  return values;
}

int64_t FlatLayout::position(int rank, int64_t i) const {
  for (const UnitRange& unit : units_) {
    const int64_t n = unit.size / ranks_;
    if (i < n) return unit.begin + rank * n + i;
    i -= n;
  }
  return size_;
}

std::string first_difference(const FlatLayout& layout, const FlatValues& values,
                             const FlatValues& expected, int rank) {
  const auto differs = [&](size_t i) {
    return std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(expected[i]);
  };
  int64_t first = -1, count = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (differs(i) && count++ == 0) first = int64_t(i);
  if (count == 0) return "";
  const double is = double(values[size_t(first)]), must = double(expected[size_t(first)]);
  char numbers[128];
  std::snprintf(numbers, sizeof numbers, " is %.9g, must be %.9g", is, must);
  char ratio[64] = "";
  if (must != 0) std::snprintf(ratio, sizeof ratio, " (ratio %.4g)", is / must);
  if (std::string_view(ratio) == " (ratio 1)") *ratio = '\0';
  return str(layout.text(first), rank < 0 ? "" : str(" on rank ", rank), numbers, ratio, "; ",
             count, " of ", values.size(), " elements differ");
}

}  // namespace zl
