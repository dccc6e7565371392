#include "stages/grouping.h"

#include <algorithm>
#include <unordered_map>

#include "stages/persistence.h"

namespace zl {
namespace {

Grouping grouping_of(std::vector<Unit> units, const std::vector<Unit>& of_model) {
  std::unordered_map<const Parameter*, int> unit_of;
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].index = int(i);
    units[i].running = 0;
    for (const Parameter* p : units[i].parameters) unit_of[p] = int(i);
  }
  Grouping grouping{std::move(units), {}};
  for (const Unit& unit : of_model) {
    std::vector<int> used;
    if (unit.index == 0) used.push_back(0);
    for (const Parameter* p : unit.parameters) used.push_back(unit_of.at(p));
    if (used.empty()) used.push_back(0);  // a unit without parameters has passes too
    std::ranges::sort(used);
    used.erase(std::unique(used.begin(), used.end()), used.end());
    grouping.used_by.push_back(std::move(used));
  }
  return grouping;
}

Unit unit_named(std::string name) {
  Unit unit;
  unit.name = std::move(name);
  return unit;
}

}  // namespace

Grouping group_by_unit(const std::vector<Unit>& of_model) {
  Grouping grouping = grouping_of(of_model, of_model);
  for (size_t i = 0; i < of_model.size(); ++i) grouping.used_by[i] = {int(i)};
  return grouping;
}

Grouping group_all(const std::vector<Unit>& of_model) {
  Unit all = unit_named("all");
  const auto add_of_root = [&](bool matrices) {
    for (Parameter* p : of_model[0].parameters)
      if ((p->shape.size() > 1) == matrices) all.parameters.push_back(p);
  };
  add_of_root(true);
  for (size_t i = 1; i < of_model.size(); ++i)
    for (Parameter* p : of_model[i].parameters) all.parameters.push_back(p);
  add_of_root(false);
  return grouping_of({all}, of_model);
}

Grouping group_persistent_apart(const std::vector<Unit>& of_model, int64_t persistence_threshold,
                                int64_t prefetch) {
  int64_t large = 0;
  std::vector<Unit> units, persistent;
  for (const Unit& unit : of_model) {
    units.push_back(unit_named(unit.name));
    for (Parameter* p : unit.parameters) {
      if (is_persistent(p->numel(), persistence_threshold)) {
        persistent.push_back(unit_named(p->name));
        persistent.back().parameters = {p};
      } else {
        units.back().parameters.push_back(p);
        large += p->numel();
      }
    }
  }
  if (large <= prefetch) {
    for (size_t i = 1; i < units.size(); ++i)
      for (Parameter* p : units[i].parameters) units[0].parameters.push_back(p);
    units.resize(1);
    units[0].name = "large parameters";
  }
  std::ranges::move(persistent, std::back_inserter(units));
  return grouping_of(std::move(units), of_model);
}

bool is_persistent(const Unit& unit, int64_t persistence_threshold) {
  return unit.index > 0 && unit.parameters.size() == 1 &&
         is_persistent(unit.numel(), persistence_threshold);
}

}  // namespace zl
