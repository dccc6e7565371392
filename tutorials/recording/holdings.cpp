#include "tutorials/recording/holdings.h"

#include <algorithm>
#include <memory>
#include <string_view>

namespace zl::recording {
namespace {

constexpr std::string_view kFull = "#+~0";

// A row per unit of rank 0 below a line of phases, a column per event of a unit.
std::vector<std::string> map_of(const Recording& recording, bool steps,
                                const std::function<char(const Snapshot&, const Row&)>& letter) {
  std::vector<std::string> lines{""};
  std::string phase;
  for (int64_t e = 0; e < recording.events(); ++e) {
    const Snapshot& event = *recording.at(e)[0];
    if (event.kind != EventKind::unit || (!steps && !event.phase.ends_with("ward"))) continue;
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

// Whether the values of full tensors are valid is read from the events: the tensors do not say.
struct Holder {
  const Stage& stage;
  const std::vector<Unit>& units;
  struct Values {
    std::string parameter_call, gradient_call;  // names of its collectives
    char parameter = '#', gradient = '0';
    bool updated = false;  // the optimizer has used the gradient: it is cleared next
  };
  std::vector<Values> values;

  Holder(const Stage& of, const std::vector<Unit>& all) : stage(of), units(all) {
    for (const Unit& unit : units) {
      const bool in_flight = stage.state(unit).parameters == ParameterState::unsharding;
      values.push_back(
          {unit.name + " parameter", unit.name + " gradient", in_flight ? '~' : '#', '0', false});
    }
  }

  void follow(const Event& event) {
    if (event.kind == EventKind::allocate || event.kind == EventKind::release ||
        event.kind == EventKind::kernel)
      return;
    const std::string_view what = event.what, detail = event.detail;
    const bool ends = event.kind == EventKind::collective_end;
    for (size_t i = 0; i < units.size(); ++i) {
      Values& v = values[i];
      if (std::exchange(v.updated, false)) v.gradient = '0';
      if (event.kind == EventKind::unit && event.unit == units[i].name) {
        if (what == "before_backward") v.gradient = '+';
        v.updated = what == "update";
      }
      if (ends && detail == v.gradient_call) v.gradient = what == "all_reduce" ? '#' : '~';
      if (detail == v.parameter_call) v.parameter = ends ? '#' : '~';
    }
  }

  std::vector<Row> rows() const {
    std::vector<Row> all;
    for (const Unit& unit : units) {
      const UnitState& u = stage.state(unit);
      const Values& v = values[size_t(unit.index)];
      const auto letter = [](char full, bool has_full, bool has_shard) {
        return has_full ? full : has_shard ? '/' : '.';
      };
      const int64_t updated = u.optimizer ? u.optimizer->numel() : 0;
      all.push_back(
          {unit.name,
           {letter(v.parameter, u.full_parameter.defined(), u.parameter_shard.defined()), ' ',
            letter(v.gradient, u.full_gradient.defined(), u.gradient_shard.defined()), ' ',
            letter('#', updated == u.partition.full(), updated > 0)}});
    }
    return all;
  }
};

}  // namespace

std::pair<View, std::function<void(const Event&)>> followed_holdings(
    const Stage& stage, const std::vector<Unit>& units) {
  const auto holder = std::make_shared<Holder>(stage, units);
  return {{[holder] { return holder->rows(); },
           {"parameter, gradient, optimizer   # full   / shard   . none   * in flight",
            "0 full, all zero   + full, not reduced   ~ full, only the local slice valid"}},
          [holder](const Event& event) { holder->follow(event); }};
}

View holdings(const Stage& stage, const std::vector<Unit>& units, EventStream& events) {
  auto [view, follow] = followed_holdings(stage, units);
  events.listen(follow);
  return view;
}

std::vector<std::string> unit_map(const Recording& recording, Held what) {
  return map_of(recording, false, [&](const Snapshot&, const Row& row) {
    const char letter = row.second[what == Held::parameter ? 0 : 2];
    return kFull.find(letter) != kFull.npos ? '#' : '.';
  });
}

std::vector<std::string> in_flight_map(const Recording& recording) {
  return map_of(recording, true, [](const Snapshot& event, const Row& row) {
    const auto flies = [&](const char* what) {
      return std::ranges::count(event.in_flight, row.first + what) > 0;
    };
    return flies(" gradient") ? 'G' : flies(" parameter") ? 'P' : '.';
  });
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
