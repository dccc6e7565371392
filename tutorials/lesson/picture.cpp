// What --step shows of one event.
#include <algorithm>

#include "tensor/error.h"
#include "tutorials/lesson/lesson.h"
#include "tutorials/lesson/stepper.h"
#include "tutorials/terminal/terminal.h"

namespace zl::lesson {
namespace {

using Lines = std::vector<std::string>;
using Ranks = std::vector<const Snapshot*>;

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

// Whether a cell has three letters, as holdings() makes them: "# + /".
bool has_letters(const std::string& cell) {
  return cell.size() == 5 && cell[1] == ' ' && cell[3] == ' ' &&
         cell.find_first_not_of("#/.+~0 ") == cell.npos;
}

// The cell of a unit, with '*' behind the letter of what is in flight. A letter has the colour of
// its use in the bars; full is bold, nothing is dim.
std::string painted_cell(const Row& row, const Snapshot& rank, const cli::Terminal& terminal) {
  const auto& [unit, cell] = row;
  if (!has_letters(cell)) return cell;
  constexpr MemoryUse uses[] = {MemoryUse::parameter, MemoryUse::gradient,
                                MemoryUse::optimizer_state};
  std::string text;
  for (size_t i = 0; i < 3; ++i) {
    const char letter = cell[2 * i];
    const std::string color = cli::bar_part(uses[i], 0).code;
    const std::string code = letter == '.' || letter == '0' ? "2"
                             : letter == '/'                ? color
                                                            : "1;" + color;
    text += terminal.paint(std::string(1, letter), code.c_str());
    if (i == 2) break;
    const bool flies = rank.flies(unit + (i == 0 ? " parameter" : " gradient"));
    text += flies ? terminal.paint("*", "7") : " ";
  }
  return text;
}

void add_rows(const Ranks& ranks, const Lines& legend, const cli::Terminal& terminal,
              Lines& lines) {
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
    for (const Snapshot* rank : ranks) {
      const Row& row = rank->rows[u];
      lines.back() += " " + painted_cell(row, *rank, terminal) +
                      std::string(std::max(width, row.second.size()) - row.second.size(), ' ');
    }
  }
  if (shown < rows.size()) lines.push_back(str("   and ", rows.size() - shown, " more"));
  for (const std::string& line : legend) lines.push_back("   " + line);
  lines.push_back("");
}

std::string bar(const MemoryLedger& ledger, int64_t scale, const cli::Terminal& terminal) {
  std::vector<cli::BarPart> parts;
  for (int use = 0; use < kMemoryUses; ++use)
    parts.push_back(cli::bar_part(MemoryUse(use), ledger.live(MemoryUse(use))));
  return cli::bar(parts, scale, kBar, terminal);
}

void add_bars(const Ranks& ranks, int64_t scale, const cli::Terminal& terminal, Lines& lines) {
  lines.push_back(left(str("   memory: ", kBar, " letters are ", with_commas(scale), " B"), 52) +
                  right("live [B]", 12) + right("sent [B]", 13));
  for (size_t r = 0; r < ranks.size(); ++r)
    lines.push_back(str("   rank ", r, " |", bar(ranks[r]->ledger, scale, terminal), "|",
                        right(ranks[r]->ledger.live_total(), 12),
                        right(ranks[r]->sent(int(ranks.size())), 13)));
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
    const std::string letter(1, cli::bar_part(MemoryUse(use), 0).letter);
    if (peak > 0) add_line(lines, letter + " " + name(MemoryUse(use)), least, most, peak);
  }
}

void add_communication(const CommunicationLog& log, int ranks, Lines& lines) {
  add_line(lines, "calls of rank 0", "calls", "elements", "sent [B]");
  for (const auto& [key, traffic] : log.rows())
    add_line(lines, str(name(key.collective), ", ", name(key.purpose)), traffic.calls,
             traffic.elements, traffic.sent_bytes_times_n / ranks);
}

}  // namespace

std::vector<std::string> picture(const Recording& recording, int64_t event, Panel panel,
                                 const cli::Terminal& terminal) {
  const Ranks ranks = recording.at(event);
  Lines lines{str("event ", event + 1, " of ", recording.events(), ": ", ranks[0]->text()), ""};
  add_rows(ranks, panel == Panel::none ? recording.legend() : Lines(), terminal, lines);
  add_bars(ranks, recording.peak(), terminal, lines);
  if (panel != Panel::memory) lines.push_back("   " + cli::use_letters(terminal));
  if (panel != Panel::none) lines.push_back("");
  if (panel == Panel::memory) add_memory(ranks, lines);
  if (panel == Panel::communication) add_communication(ranks[0]->log, int(ranks.size()), lines);
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace zl::lesson
