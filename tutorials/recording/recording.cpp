#include "tutorials/recording/recording.h"

#include <algorithm>

namespace zl::recording {
namespace {

void follow(const Event& event, std::vector<std::string>& in_flight) {
  if (event.kind == EventKind::collective_begin) in_flight.push_back(event.detail);
  if (event.kind != EventKind::collective_end) return;
  const auto ended = std::ranges::find(in_flight, event.detail);
  if (ended != in_flight.end()) in_flight.erase(ended);
}

}  // namespace

bool Snapshot::flies(const std::string& call) const {
  return std::ranges::count(in_flight, call) > 0;
}

int64_t Snapshot::sent(int ranks) const {
  int64_t times_n = 0, in_groups = 0;
  for (const auto& [key, traffic] : log.rows())
    (key.group.empty() ? times_n : in_groups) +=
        key.group.empty() ? traffic.sent_bytes_times_n : traffic.sent_bytes();
  return times_n / ranks + in_groups;
}

std::string Snapshot::text() const {
  std::string text = phase;
  text.resize(std::max<size_t>(text.size(), 8), ' ');
  text += " " + (unit.empty() ? "-" : unit);
  text.resize(std::max<size_t>(text.size(), 14), ' ');
  if (kind != EventKind::phase) text += " " + what + (detail.empty() ? "" : " '" + detail + "'");
  if (!group.empty()) text += " in " + group;
  const bool begins = kind == EventKind::phase || kind == EventKind::collective_begin;
  return text + (begins ? " begins" : "");
}

void Recording::watch(Communicator& comm, const Memory& memory, View view) {
  Rank& rank = ranks_[size_t(comm.rank())];
  rank.memory = &memory;
  rank.view = std::move(view);
  comm.events().listen([&rank, &comm](const Event& event) {
    if (!rank.memory || !is_recorded(event)) return;
    follow(event, rank.in_flight);
    std::vector<Row> rows;
    if (rank.view.rows) rows = rank.view.rows();
    rank.changed = rank.changed || rows != rank.rows;
    rank.rows = std::move(rows);
    const bool of_gradient = std::string_view(event.detail).ends_with(" gradient"),
               changed = std::exchange(rank.changed, false) && !rank.shown.empty();
    if (event.kind == EventKind::collective_begin && !changed && !of_gradient) return;
    rank.shown.push_back({.kind = event.kind,
                          .sequence = event.sequence,
                          .phase = event.phase,
                          .unit = event.unit,
                          .what = event.what,
                          .detail = event.detail,
                          .group = event.group,
                          .in_flight = rank.in_flight,
                          .ledger = rank.memory->ledger(),
                          .log = comm.log(),
                          .rows = rank.rows});
  });
}

int64_t Recording::events() const {
  size_t least = ranks_.empty() ? 0 : SIZE_MAX;
  for (const Rank& rank : ranks_) least = std::min(least, rank.shown.size());
  return int64_t(least);
}

std::vector<const Snapshot*> Recording::at(int64_t event) const {
  std::vector<const Snapshot*> all;
  for (const Rank& rank : ranks_) all.push_back(&rank.shown[size_t(event)]);
  return all;
}

int64_t Recording::peak() const {
  int64_t most = 0;
  for (const Rank& rank : ranks_)
    for (const Snapshot& shown : rank.shown) most = std::max(most, shown.ledger.peak_total());
  return most;
}

std::vector<std::string> unit_map(const Recording& recording, Drawn what) {
  const auto letter = [what](const Snapshot& event, const Row& row) {
    if (what != Drawn::in_flight)
      return std::string_view("/.").find(row.second[size_t(what)]) == std::string::npos ? '#' : '.';
    return event.flies(row.first + " gradient")    ? 'G'
           : event.flies(row.first + " parameter") ? 'P'
                                                   : '.';
  };
  std::vector<std::string> lines{""};
  std::string phase;
  for (int64_t e = 0; e < recording.events(); ++e) {
    const Snapshot& event = *recording.at(e)[0];
    const bool passes = event.phase.ends_with("ward");
    if (event.kind != EventKind::unit || (what != Drawn::in_flight && !passes)) continue;
    if (lines.size() == 1)
      for (const Row& row : event.rows)
        lines.push_back(("  " + row.first + "       ").substr(0, 9));
    if (std::exchange(phase, event.phase) != event.phase) {
      const size_t width = std::max(lines[0].size(), lines[1].size());
      for (std::string& line : lines) line.resize(width, ' ');
      lines[0] += "|" + phase;
      for (size_t u = 1; u < lines.size(); ++u) lines[u] += '|';
    }
    for (size_t u = 1; u < lines.size(); ++u) lines[u] += letter(event, event.rows[u - 1]);
  }
  return lines;
}

int64_t most_at_once(const std::vector<std::string>& map) {
  int64_t most = 0;
  for (size_t column = 9; column < map[1].size(); ++column)
    most = std::max(most, std::ranges::count_if(map.begin() + 1, map.end(), [&](const auto& line) {
                      return std::string_view("#GP").find(line[column]) != std::string_view::npos;
                    }));
  return most;
}

}  // namespace zl::recording
