// A table with one column for each stage, and sums over the rows of memory and traffic.
#pragma once

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
    row(title, [](const Stage& s) { return std::string(name(s.stage)); });
  }
  void row(const std::string& title, const auto& cell) {
    std::vector<std::string> cells = {title};
    for (const Stage& s : stages_) cells.push_back(cell(s));
    table_.row(std::move(cells));
  }
  void heading(const std::string& title) {
    table_.line();
    if (!title.empty()) table_.row({title});
  }
  std::string text() const { return table_.text(); }

 private:
  const std::vector<Stage>& stages_;
  TextTable table_;
};

// [B] of one use on rank 0. Rows that are not in the list are zero.
inline int64_t bytes_of(const std::vector<MemoryRow>& rows, Pool pool, MemoryUse use,
                        int64_t MemoryRow::*column) {
  for (const MemoryRow& row : rows)
    if (row.rank == 0 && row.pool == pool && row.use == use) return row.*column;
  return 0;
}

// [B] of all uses on rank 0.
inline int64_t total_bytes(const std::vector<MemoryRow>& rows, Pool pool,
                           int64_t MemoryRow::*column) {
  int64_t sum = 0;
  for (int use = 0; use < kMemoryUses; ++use) sum += bytes_of(rows, pool, MemoryUse(use), column);
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

}  // namespace zl::cli
