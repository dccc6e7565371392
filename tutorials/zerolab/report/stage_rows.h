// The rows of bytes that the tables of compare, plan and systems as shipped have in common.
// Templates, so that the JSON library stays out of headers.
#pragma once

#include "stages/predict/plan.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/report/run_json.h"

namespace zl::cli {

// How far off its prediction a value is: `key` of the rows in `list`, of all ranks, that have the
// values `of`, or the number `total` of rank 0. The furthest of them.
template <class Json>
std::string off_prediction(const Json& stage, const char* list, const std::string& key,
                           const Json& of, const std::string& total = "") {
  int64_t most = of_rank_0(stage, total) - of_rank_0(stage, "predicted_" + total);
  for (const Json& row : stage.value(list, Json::array()))
    if (Json with = row; with.update(of), with == row) {
      const int64_t value = row[key], predicted = row["predicted_" + key];
      if (std::abs(value - predicted) > std::abs(most)) most = value - predicted;
    }
  return str(most > 0 ? "+" : "", most, " B");
}

// Memory by pool and use, traffic and moves, of rank 0. `measured`: with rows that say how far they
// are off their predictions; otherwise nothing ran, and the predictions are shown.
template <class Json>
void byte_rows(StageColumns<Json>& table, bool measured) {
  const std::string which = measured ? "" : "predicted_";
  const auto off_row = [&](const char* list, const std::string& key, const Json& of,
                           const std::string& total = "") {
    if (measured)
      table.row("  off the prediction by",
                [&](const Json& s) { return off_prediction(s, list, key, of, total); });
  };
  const auto sum = [&](const char* list, const std::string& key, const Json& of) {
    return [=](const Json& s) { return sum_of(s.value(list, Json::array()), which + key, of); };
  };
  for (const auto& [pool, memory, total] : {std::tuple{"device", "memory", "peak_total_bytes"},
                                            {"host", "host memory", "peak_host_bytes"},
                                            {"disk", "disk space", ""}}) {
    const Json of{{"pool", pool}};
    if (!table.any(sum("memory", "peak_bytes", of))) continue;
    table.heading(str(memory, " of rank 0 in steady state"));
    table.use_rows(pool, which + "rest_bytes");
    if (!measured) table.row("  all uses", sum("memory", "rest_bytes", of));
    off_row("memory", "rest_bytes", of);
    table.heading("each use at its own peak");
    table.use_rows(pool, which + "peak_bytes");
    table.row_if_any("  peak of a step",
                     [&](const Json& s) { return of_rank_0(s, which + total); });
    off_row("memory", "peak_bytes", of, total);
  }
  table.heading();
  const Json all = Json::object();
  table.row("sent per rank and step", sum("communication", "sent_bytes_per_rank", all));
  off_row("communication", "sent_bytes_per_rank", all);
  for (int i = 0; i < kMoves; ++i) {
    const Json of{{"move", name(Move(i))}};
    const auto bytes = sum("moves", "bytes_per_step", of);
    table.row_if_any(str(name(Move(i)), " per rank and step"), bytes);
    if (table.any(bytes)) off_row("moves", "bytes_per_step", of);
  }
}

}  // namespace zl::cli
