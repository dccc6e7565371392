// What --step shows of one event.
#include <algorithm>

#include "tensor/error.h"
#include "tutorials/lesson/lesson.h"
#include "tutorials/lesson/stepper.h"

namespace zl::lesson {
namespace {

using Lines = std::vector<std::string>;
using Ranks = std::vector<const Snapshot*>;

constexpr char kLetters[kMemoryUses + 1] = "PMGOACW";  // in the order of MemoryUse
constexpr int kBar = 40;
constexpr size_t kMostRows = 8;  // of more rows those around the unit at work are shown

std::string left(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}
std::string right(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}
std::string right(int64_t number, size_t width) { return right(with_commas(number), width); }

void add_rows(const Ranks& ranks, const Lines& legend, Lines& lines) {
  const std::vector<Row>& rows = ranks[0]->rows;
  if (rows.empty()) return;
  const auto active = size_t(std::ranges::find(rows, ranks[0]->unit, &Row::first) - rows.begin());
  const size_t at = active == rows.size() ? 0 : active, shown = std::min(rows.size(), kMostRows),
               first = std::min(at < shown / 2 ? 0 : at - shown / 2, rows.size() - shown);
  size_t width = 7;
  for (const Row& row : rows) width = std::max(width, row.second.size());
  lines.push_back(left("", 8));
  for (size_t r = 0; r < ranks.size(); ++r) lines.back() += left(str(" rank ", r), width + 1);
  for (size_t u = first; u < first + shown; ++u) {
    lines.push_back((u == active ? " > " : "   ") + left(rows[u].first, 5));
    for (const Snapshot* rank : ranks) lines.back() += left(" " + rank->rows[u].second, width + 1);
  }
  if (shown < rows.size()) lines.push_back(str("   and ", rows.size() - shown, " more"));
  for (const std::string& line : legend) lines.push_back("   " + line);
  lines.push_back("");
}

// One letter for each kBar-th of `scale`. Where letters do not come out even, later uses get fewer.
std::string bar(const MemoryLedger& ledger, int64_t scale) {
  std::string cells;
  int64_t bytes = 0;
  for (int use = 0; use < kMemoryUses; ++use) {
    bytes += ledger.live(MemoryUse(use));
    const auto end = size_t(scale > 0 ? (bytes * kBar + scale / 2) / scale : 0);
    if (end > cells.size()) cells.append(end - cells.size(), kLetters[use]);
  }
  return left(cells, kBar);
}

void add_bars(const Ranks& ranks, int64_t scale, Lines& lines) {
  lines.push_back(left(str("   memory: ", kBar, " letters are ", with_commas(scale), " B"), 52) +
                  right("live [B]", 12) + right("sent [B]", 13));
  for (size_t r = 0; r < ranks.size(); ++r)
    lines.push_back(str("   rank ", r, " |", bar(ranks[r]->ledger, scale), "|",
                        right(ranks[r]->ledger.live_total(), 12),
                        right(ranks[r]->sent(int(ranks.size())), 13)));
  lines.push_back("   P parameter G gradient O optimizer A activation C communication W workspace");
}

void add_line(Lines& lines, const std::string& name, const auto&... cells) {
  lines.push_back(left("   " + name, 34) + (right(cells, 14) + ...));
}

void add_memory(const Ranks& ranks, Lines& lines) {
  add_line(lines, "memory [B]", "live, least", "live, most", "peak, most");
  for (int use = 0; use < kMemoryUses; ++use) {
    int64_t least = INT64_MAX, most = 0, peak = 0;
    for (const Snapshot* rank : ranks) {
      least = std::min(least, rank->ledger.live(MemoryUse(use)));
      most = std::max(most, rank->ledger.live(MemoryUse(use)));
      peak = std::max(peak, rank->ledger.peak(MemoryUse(use)));
    }
    if (peak > 0) add_line(lines, name(MemoryUse(use)), least, most, peak);
  }
}

void add_communication(const CommunicationLog& log, int ranks, Lines& lines) {
  add_line(lines, "calls of rank 0", "calls", "elements", "sent [B]");
  for (const auto& [key, traffic] : log.rows())
    add_line(lines, str(name(key.first), ", ", name(key.second)), traffic.calls, traffic.elements,
             traffic.sent_bytes_times_n / ranks);
}

}  // namespace

std::vector<std::string> picture(const Recording& recording, int64_t event, Panel panel) {
  const Ranks ranks = recording.at(event);
  Lines lines{str("event ", event + 1, " of ", recording.events(), ": ", ranks[0]->text()), ""};
  add_rows(ranks, recording.legend(), lines);
  add_bars(ranks, recording.peak(), lines);
  if (panel != Panel::none) lines.push_back("");
  if (panel == Panel::memory) add_memory(ranks, lines);
  if (panel == Panel::communication) add_communication(ranks[0]->log, int(ranks.size()), lines);
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace zl::lesson
