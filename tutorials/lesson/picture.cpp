#include "tutorials/lesson/picture.h"

#include <algorithm>

#include "tensor/error.h"
#include "tutorials/lesson/lesson.h"

namespace zl::lesson {
namespace {

constexpr char kLetters[kMemoryUses + 1] = "PMGOACW";  // in the order of MemoryUse
constexpr int kBar = 40;
constexpr size_t kMostUnits = 8;  // rows; of more units those around the one at work are shown

std::string left(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}
std::string right(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

// One letter for each kBar-th of `scale`; where the letters do not come out even, later uses give
// way.
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

// [first, last) of the units that are shown: all, or those around the one at work.
std::pair<size_t, size_t> shown_units(const RankMoment& rank) {
  const size_t count = rank.units.size();
  if (count <= kMostUnits) return {0, count};
  const auto at = std::ranges::find(rank.units, rank.unit, &UnitCell::name);
  const size_t active = at == rank.units.end() ? 0 : size_t(at - rank.units.begin());
  const size_t first =
      std::min(active < kMostUnits / 2 ? 0 : active - kMostUnits / 2, count - kMostUnits);
  return {first, first + kMostUnits};
}

void add_units(const Moment& moment, std::vector<std::string>& lines) {
  const RankMoment& first_rank = moment.ranks[0];
  if (first_rank.units.empty()) return;
  std::string head = "   unit    ";
  for (const RankMoment& rank : moment.ranks) head += left(str("rank ", rank.rank), 8);
  lines.push_back(head);
  const auto [first, last] = shown_units(first_rank);
  if (first > 0) lines.push_back(str("   ... ", first, " more"));
  for (size_t u = first; u < last; ++u) {
    std::string line = (first_rank.units[u].name == first_rank.unit ? " > " : "   ") +
                       left(first_rank.units[u].name, 8);
    for (const RankMoment& rank : moment.ranks) {
      const UnitCell& cell = rank.units.size() > u ? rank.units[u] : UnitCell{};
      line += left({cell.parameter, ' ', cell.gradient, ' ', cell.optimizer}, 8);
    }
    lines.push_back(line);
  }
  if (last < first_rank.units.size())
    lines.push_back(str("   ... ", first_rank.units.size() - last, " more"));
  lines.push_back("   P G O whole parameters, gradients, optimizer   p g o own shard   . free");
  lines.push_back("");
}

void add_bars(const Moment& moment, std::vector<std::string>& lines) {
  int64_t scale = 0;
  for (const RankMoment& rank : moment.ranks) scale = std::max(scale, rank.ledger.peak_total());
  for (const RankMoment& rank : moment.ranks)
    lines.push_back(str("   rank ", rank.rank, " |", bar(rank.ledger, scale), "|",
                        right(with_commas(rank.ledger.live_total()), 11), " B"));
  lines.push_back("   P parameter G gradient O optimizer A activation C communication W workspace");
}

void add_memory(const Moment& moment, std::vector<std::string>& lines) {
  lines.push_back("");
  lines.push_back(left("   memory [B]", 22) + right("live, least", 14) + right("live, most", 14) +
                  right("peak, most", 14));
  for (int use = 0; use < kMemoryUses; ++use) {
    int64_t least = INT64_MAX, most = 0, peak = 0;
    for (const RankMoment& rank : moment.ranks) {
      least = std::min(least, rank.ledger.live(MemoryUse(use)));
      most = std::max(most, rank.ledger.live(MemoryUse(use)));
      peak = std::max(peak, rank.ledger.peak(MemoryUse(use)));
    }
    if (peak == 0) continue;
    lines.push_back(left(str("   ", name(MemoryUse(use))), 22) + right(with_commas(least), 14) +
                    right(with_commas(most), 14) + right(with_commas(peak), 14));
  }
}

void add_communication(const Moment& moment, std::vector<std::string>& lines) {
  lines.push_back("");
  lines.push_back(left("   rank 0's calls", 34) + right("calls", 8) + right("elements", 14) +
                  right("sent [B]", 14));
  for (const auto& [key, traffic] : moment.ranks[0].log.rows())
    lines.push_back(left(str("   ", name(key.first), ", ", name(key.second)), 34) +
                    right(with_commas(traffic.calls), 8) +
                    right(with_commas(traffic.elements), 14) +
                    right(with_commas(traffic.sent_bytes_times_n / moment.size), 14));
  if (moment.ranks[0].log.rows().empty()) lines.push_back("   none yet");
}

}  // namespace

int64_t RankMoment::sent(int size) const {
  int64_t times_n = 0;
  for (const auto& [key, traffic] : log.rows()) times_n += traffic.sent_bytes_times_n;
  return times_n / size;
}

std::string event_text(const RankMoment& rank) {
  std::string text =
      left(rank.phase, 10) + " " + left(rank.unit.empty() ? "-" : rank.unit, 5) + " " + rank.what;
  if (!rank.detail.empty()) text += " '" + rank.detail + "'";
  return text;
}

std::vector<std::string> picture(const Moment& moment, Panel panel) {
  std::vector<std::string> lines{
      str(moment.lesson, "  event ", moment.event, "  ", event_text(moment.ranks[0])), ""};
  add_units(moment, lines);
  add_bars(moment, lines);
  lines.push_back(
      str("   sent so far by each rank: ", with_commas(moment.ranks[0].sent(moment.size)), " B"));
  if (panel == Panel::memory) add_memory(moment, lines);
  if (panel == Panel::communication) add_communication(moment, lines);
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  lines.push_back("[n]ext  [u]nit  [m]emory  [c]ommunication  [q]uit");
  return lines;
}

std::string plain_line(const Moment& moment) {
  const RankMoment& rank = moment.ranks[0];
  std::string cells;
  for (const UnitCell& cell : rank.units)
    cells += str(" ", cell.name, ":", cell.parameter, cell.gradient, cell.optimizer);
  return str("step ", right(str(moment.event), 4), "  ", left(event_text(rank), 50),
             right(with_commas(rank.ledger.live_total()), 10), " B live ",
             right(with_commas(rank.sent(moment.size)), 9), " B sent", cells);
}

}  // namespace zl::lesson
