// A table with one column for each stage, and sums over the rows of memory, traffic and moves.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "stages/train/comparison.h"
#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {

// `Stage` is StageOutcome, StagePlan or PresetPlan.
template <class Stage>
class StageTable {
 public:
  StageTable(const std::vector<Stage>& stages, const std::string& title) : stages_(stages) {
    std::vector<std::string> names = {title};
    for (const Stage& s : stages) names.push_back(name(s.stage));
    table_.row(std::move(names));
  }
  // `cell`: a text, or bytes. A stage that ran and did not fit has "-".
  void row(const std::string& title, const auto& cell) {
    std::vector<std::string> cells = {title};
    for (const Stage& s : stages_) cells.push_back(missing(s) ? "-" : text_of(cell(s)));
    table_.row(std::move(cells));
  }
  // Left out where every stage has 0.
  void row_if_any(const std::string& title, const auto& bytes) {
    if (any(bytes)) row(title, bytes);
  }
  bool any(const auto& is) const {
    return std::ranges::any_of(stages_, [&](const Stage& s) { return !missing(s) && is(s); });
  }
  // An empty line, and a title if there is one.
  void heading(const std::string& title = "") {
    table_.line();
    if (!title.empty()) table_.row({title});
  }
  std::string text() const { return table_.text(); }

 private:
  static bool missing(const Stage& s) {
    if constexpr (std::is_same_v<Stage, StageOutcome>) return s.out_of_memory.has_value();
    return false;
  }
  static std::string text_of(const std::string& text) { return text; }
  static std::string text_of(int64_t bytes) { return human_bytes(bytes); }

  const std::vector<Stage>& stages_;
  TextTable table_;
};

// [B] of one use on rank 0, or of all. Rows that are not in the list are zero.
inline int64_t bytes_of(const std::vector<MemoryRow>& rows, Pool pool, std::optional<MemoryUse> use,
                        int64_t MemoryRow::*column) {
  int64_t sum = 0;
  for (const MemoryRow& row : rows)
    if (row.rank == 0 && row.pool == pool && row.use == use.value_or(row.use)) sum += row.*column;
  return sum;
}

// [B] that rank 0 sends in one step.
inline int64_t sent_bytes(const std::vector<TrafficRow>& rows, int64_t TrafficRow::*column) {
  int64_t sum = 0;
  for (const TrafficRow& row : rows) sum += row.*column;
  return sum;
}

// [B] that rank 0 moves so, in all steps of the rows.
inline int64_t moved_bytes(const std::vector<MoveRow>& rows, Move move, int64_t MoveRow::*column) {
  for (const MoveRow& row : rows)
    if (row.rank == 0 && row.move == move) return row.*column;
  return 0;
}

// A row for each use of which a stage has any.
template <class Stage>
void use_rows(StageTable<Stage>& table, Pool pool, int64_t MemoryRow::*column) {
  for (int i = 0; i < kMemoryUses; ++i)
    table.row_if_any(str("  ", name(MemoryUse(i))), [=](const Stage& s) {
      return bytes_of(s.memory, pool, MemoryUse(i), column);
    });
}

}  // namespace zl::cli
