#include "tutorials/lesson/time_map.h"

#include <algorithm>
#include <string_view>

#include "tutorials/lesson/unit_cell.h"

namespace zl::lesson {

void TimeMap::watch(Communicator& comm, const Stage& stage, const std::vector<Unit>& units) {
  for (const Unit& u : units) names_.push_back(u.name);
  comm.events().listen([this, &stage, &units](const Event& event) {
    const std::string_view phase = event.phase;
    if (event.kind != EventKind::unit || (phase != "forward" && phase != "backward")) return;
    Column column{.backward = phase == "backward", .parameters = {}, .gradients = {}};
    for (const Unit& u : units) {
      const UnitCell cell = look_at(u, stage);
      column.parameters += cell.parameter == 'P' ? '#' : '.';
      column.gradients += cell.gradient == 'G' ? '#' : '.';
    }
    columns_.push_back(column);
  });
}

std::vector<std::string> TimeMap::rows(std::string Column::*what) const {
  const auto wide = size_t(std::clamp(66 / std::max(1, int(columns_.size())), 1, 3));
  const auto forward = size_t(std::ranges::count(columns_, false, &Column::backward));
  std::string head = "         forward";
  head.resize(std::max(head.size(), 9 + forward * wide), ' ');
  std::vector<std::string> all{head + "|backward"};
  for (size_t u = 0; u < names_.size(); ++u) {
    std::string row = "  " + names_[u];
    row.resize(9, ' ');
    for (size_t c = 0; c < columns_.size(); ++c)
      row += (c == forward ? "|" : "") + std::string(wide, (columns_[c].*what)[u]);
    all.push_back(row);
  }
  return all;
}

int64_t TimeMap::most_parameters() const {
  int64_t most = 0;
  for (const Column& column : columns_)
    most = std::max<int64_t>(most, std::ranges::count(column.parameters, '#'));
  return most;
}

}  // namespace zl::lesson
