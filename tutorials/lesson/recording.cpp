#include "tutorials/lesson/recording.h"

#include <algorithm>
#include <string_view>

#include "tensor/error.h"

namespace zl::lesson {
namespace {

bool is_collective(const Event& event) {  // only two ranks take part in a send or a receive
  const std::string_view what = event.what;
  return (event.kind == EventKind::collective_begin || event.kind == EventKind::collective_end) &&
         what != "send" && what != "receive";
}

}  // namespace

int64_t Snapshot::sent(int ranks) const {
  int64_t times_n = 0;
  for (const auto& [call, traffic] : log.rows()) times_n += traffic.sent_bytes_times_n;
  return times_n / ranks;
}

std::string Snapshot::text() const {
  std::string text = phase;
  text.resize(std::max<size_t>(text.size(), 8), ' ');
  text += " " + (unit.empty() ? "-" : unit);
  text.resize(std::max<size_t>(text.size(), 14), ' ');
  if (kind != EventKind::phase) text += " " + what + (detail.empty() ? "" : " '" + detail + "'");
  const bool begins = kind == EventKind::phase || kind == EventKind::collective_begin;
  return text + (begins ? " begins" : "");
}

void Recording::watch(Communicator& comm, const Memory& memory, View view) {
  Rank& rank = ranks_[size_t(comm.rank())];
  rank.memory = &memory;
  rank.view = std::move(view);
  comm.events().listen([&rank, &comm](const Event& event) {
    const bool named = event.kind == EventKind::phase || event.kind == EventKind::unit;
    if (!rank.memory || !(named || is_collective(event))) return;
    std::vector<Row> rows = rank.view.rows ? rank.view.rows() : std::vector<Row>();
    if (event.kind == EventKind::collective_begin &&
        (rank.events.empty() || rows == rank.events.back().rows))
      return;
    rank.events.push_back({.kind = event.kind,
                           .sequence = event.sequence,
                           .phase = event.phase,
                           .unit = event.unit,
                           .what = event.what,
                           .detail = event.detail,
                           .ledger = rank.memory->ledger(),
                           .log = comm.log(),
                           .rows = std::move(rows)});
  });
}

int64_t Recording::events() const {
  size_t least = ranks_.empty() ? 0 : SIZE_MAX;
  for (const Rank& rank : ranks_) least = std::min(least, rank.events.size());
  return int64_t(least);
}

std::vector<const Snapshot*> Recording::at(int64_t event) const {
  std::vector<const Snapshot*> all;
  for (const Rank& rank : ranks_) all.push_back(&rank.events[size_t(event)]);
  return all;
}

int64_t Recording::peak() const {
  int64_t most = 0;
  for (const Rank& rank : ranks_)
    for (const Snapshot& snapshot : rank.events)
      most = std::max(most, snapshot.ledger.peak_total());
  return most;
}

}  // namespace zl::lesson
