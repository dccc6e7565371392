#include <algorithm>
#include <cstring>

#include "tutorials/terminal/memory_bar.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/stage_table.h"

namespace zl::cli {
namespace {

constexpr int kBarColumns = 50;

using Parts = std::vector<BarPart>;

int64_t total(const Parts& parts) {
  int64_t bytes = 0;
  for (const BarPart& part : parts) bytes += part.bytes;
  return bytes;
}

Parts by_use(const auto& bytes) {
  Parts parts;
  for (int use = 0; use < kMemoryUses; ++use)
    parts.push_back(bar_part(MemoryUse(use), bytes(MemoryUse(use))));
  return parts;
}

// Parameters, gradients, and the rest: losses and norms.
Parts sent_parts(const StageOutcome& s) {
  Parts parts = {
      bar_part(MemoryUse::parameter, 0), bar_part(MemoryUse::gradient, 0), {0, '+', "0"}};
  for (const TrafficRow& row : s.traffic)
    parts[row.purpose == Purpose::parameter  ? 0
          : row.purpose == Purpose::gradient ? 1
                                             : 2]
        .bytes += row.sent;
  return parts;
}

// One bar per stage; "" if all are empty.
std::string group(const char* title, const Comparison& c, const Terminal& terminal,
                  const auto& parts_of) {
  int64_t scale = 0;
  size_t names = 5;  // the length of the longest
  std::vector<Parts> all;
  for (const StageOutcome& s : c.stages) {
    all.push_back(s.out_of_memory ? Parts() : parts_of(s));
    scale = std::max(scale, total(all.back()));
    names = std::max(names, std::strlen(name(s.stage)));
  }
  if (scale == 0) return "";
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    std::string head = std::string("  ") + (i == 0 ? title : "");
    head.resize(8, ' ');
    head += name(c.stages[i].stage);
    head.resize(8 + names + 2, ' ');
    text += head + (c.stages[i].out_of_memory ? "does not fit\n"
                                              : bar(all[i], scale, kBarColumns, terminal) + "  " +
                                                    human_bytes(total(all[i])) + "\n");
  }
  return text;
}

}  // namespace

std::string comparison_bars(const ComparisonReport& report, const Terminal& terminal) {
  const Comparison& c = report.comparison;
  const std::string kept = group("kept", c, terminal, [](const StageOutcome& s) {
    return by_use(
        [&](MemoryUse use) { return bytes_of(s.memory, Pool::device, use, &MemoryRow::rest); });
  });
  if (kept.empty()) return "";
  const std::string peak = group("peak", c, terminal, [&](const StageOutcome& s) {
    return by_use([&](MemoryUse use) { return report.at_peak.at(s.stage)[size_t(use)]; });
  });
  const std::string moved = group("sent", c, terminal, sent_parts);
  const std::string more = moved.empty() ? "" : "  " + terminal.paint("+", "0") + " norm, loss\n";
  return "  rank 0: memory in steady state and at the peak, and bytes sent per step\n" + kept +
         peak + moved + "  " + use_letters(terminal) + "\n" + more + "\n";
}

}  // namespace zl::cli
