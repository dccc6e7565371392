#include "tutorials/recording/step_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace zl::recording {
namespace {

using Json = nlohmann::ordered_json;

size_t common_events(const std::vector<RankRecording>& ranks) {
  size_t least = ranks.empty() ? 0 : SIZE_MAX;
  for (const RankRecording& rank : ranks) least = std::min(least, rank.events.size());
  return least;
}

std::string series_name(int series) {
  const Pool pool = series < kMemoryUses ? Pool::device : Pool::host;
  std::string use = name(MemoryUse(series % kMemoryUses));
  std::ranges::replace(use, '_', ' ');
  return str(name(pool), " ", use);
}

// What is to be added to the times of `rank`, so that they are of rank 0's clock. Ranks of one
// machine share a clock; on another the median collective ends at the same time.
int64_t clock_difference(const RankRecording& rank0, const RankRecording& rank, size_t events) {
  if (rank.machine == rank0.machine) return 0;
  std::vector<int64_t> differences;
  for (size_t i = 0; i < events; ++i)
    if (rank.events[i].kind == EventKind::collective_end)
      differences.push_back(rank0.events[i].nanoseconds - rank.events[i].nanoseconds);
  if (differences.empty()) return rank0.events[0].nanoseconds - rank.events[0].nanoseconds;
  std::ranges::nth_element(differences, differences.begin() + long(differences.size() / 2));
  return differences[differences.size() / 2];
}

// The series that are ever above 0 on a shown rank.
std::vector<int> series_of(const std::vector<RankRecording>& ranks) {
  std::array<bool, kSeries> used{};
  for (const RankRecording& rank : ranks) {
    for (const auto& live : rank.live) used[size_t(live.series)] |= live.bytes > 0;
    for (const auto& peak : rank.peaks)
      for (int s = 0; s < kSeries; ++s) used[size_t(s)] |= peak.bytes[size_t(s)] > 0;
  }
  std::vector<int> all;
  for (int s = 0; s < kSeries; ++s)
    if (used[size_t(s)]) all.push_back(s);
  return all;
}

// What all shown ranks have.
struct Shape {
  size_t events;
  std::vector<int> series;
  int64_t begin;  // [ns] of rank 0's clock
};

// Of each element that belongs to an event of the shape.
Json list_of(const auto& all, const Shape& shape, const auto& as_json) {
  Json list = Json::array();
  for (const auto& element : all)
    if (size_t(element.event) < shape.events) list.push_back(as_json(element));
  return list;
}

Json memory_json(const RankRecording& r, const Shape& shape) {
  Json list = Json::array();
  for (const auto& live : r.live) {
    const auto series = std::ranges::find(shape.series, live.series);
    if (size_t(live.event) < shape.events && series != shape.series.end())
      list.push_back({live.event, series - shape.series.begin(), live.bytes});
  }
  return list;
}

Json peaks_json(const RankRecording& r, const Shape& shape) {
  return list_of(r.peaks, shape, [&](const auto& peak) {
    Json bytes = Json::array();
    for (const int s : shape.series) bytes.push_back(peak.bytes[size_t(s)]);
    return Json{peak.event, bytes};
  });
}

Json calls_json(const RankRecording& r, const Shape& shape, int64_t shift) {
  Json list = Json::array();
  const auto events = int32_t(shape.events);
  for (const auto& c : r.calls)
    if (c.begin < events)
      list.push_back({c.begin, c.end < events ? c.end : -1, c.waits + shift,
                      c.met ? c.met + shift : 0, c.moved ? c.moved + shift : 0});
  return list;
}

Json cells_json(const RankRecording& r, const Shape& shape) {
  return list_of(r.cells, shape, [&](const auto& cell) {
    std::string letters = r.text(cell.text);
    std::erase(letters, ' ');
    return Json{cell.event, cell.row, letters};
  });
}

Json rank_json(const RankRecording& r, const RankRecording& rank0, int rank, const Shape& shape) {
  const int64_t shift = clock_difference(rank0, r, shape.events) - shape.begin;
  Json ns = Json::array();
  for (size_t e = 0; e < shape.events; ++e) ns.push_back(r.events[e].nanoseconds + shift);
  return {{"rank", rank},
          {"ns", ns},
          {"cells", cells_json(r, shape)},
          {"memory", memory_json(r, shape)},
          {"peaks", peaks_json(r, shape)},
          {"calls", calls_json(r, shape, shift)}};
}

Json events_json(const RankRecording& r, size_t events) {
  Json list = Json::array();
  for (size_t i = 0; i < events; ++i) {
    const RankRecording::Entry& e = r.events[i];
    const int kind = e.kind == EventKind::collective_begin ? 2 : std::min(int(e.kind), 3);
    list.push_back({kind, e.phase, e.unit, e.what, e.detail, e.method, e.bytes, e.elements});
  }
  return list;
}

Json units_json(const RankRecording& r) {
  Json list = Json::array();
  for (size_t u = 0; u < r.units.size() && u < r.rows.size(); ++u)
    list.push_back(
        {{"name", r.rows[u]}, {"elements", r.units[u].elements}, {"shard", r.units[u].shard}});
  return list;
}

}  // namespace

std::string step_json(const RecordedStep& step) {
  const size_t events = common_events(step.shown);
  if (events == 0) return "";
  const RankRecording& rank0 = step.shown[0];
  const Shape shape{events, series_of(step.shown), rank0.events[0].nanoseconds};
  Json series = Json::array(), ranks = Json::array();
  for (const int s : shape.series) series.push_back(series_name(s));
  for (size_t r = 0; r < step.shown.size(); ++r)
    ranks.push_back(rank_json(step.shown[r], rank0, int(r), shape));
  const Json json{{"stage", step.stage},
                  {"step", rank0.step},
                  {"ranks", step.ranks},
                  {"timed", true},
                  {"units", units_json(rank0)},
                  {"series", series},
                  {"texts", rank0.texts},
                  {"events", events_json(rank0, events)},
                  {"rank", ranks}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> left_out(const RecordedStep& step) {
  std::vector<std::string> all;
  const size_t events = common_events(step.shown);
  if (events == 0) return all;
  const RankRecording& r = step.shown[0];
  if (const auto shown = int(step.shown.size()); shown < step.ranks)
    all.push_back(shown == 1 ? str("Of ", step.ranks, " ranks only rank 0 is shown.")
                             : str("Of ", step.ranks, " ranks the first ", shown, " are shown."));
  if (r.left_out_micro_batches > 0)
    all.push_back(str("Of the ", r.micro_batches, " micro-batches of a step in ", step.stage,
                      " the first ", r.micro_batches - r.left_out_micro_batches - 1,
                      " and the last are shown."));
  else if (r.left_out > 0)
    all.push_back(str("Of the ", int64_t(r.events.size()) + r.left_out, " events of a step in ",
                      step.stage, " the first ", r.events.size(), " are shown."));
  return all;
}

}  // namespace zl::recording
