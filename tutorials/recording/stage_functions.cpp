#include "tutorials/recording/stage_functions.h"

#include <string_view>
#include <utility>

namespace zl::recording {

StageFunctions::StageFunctions(StageKind kind, const Stage& stage, const std::vector<Unit>& units)
    : stage_(stage),
      units_(units),
      shards_gradients_(shards_gradient(kind)),
      shards_parameters_(shards_parameter(kind)),
      gathers_updated_(shards_optimizer(kind) && !shards_parameter(kind)) {
  for (const Unit& unit : units)
    of_.push_back({unit.name + " parameter", unit.name + " gradient", false, false});
}

// In zero3 the unit is unsharded first: before_backward runs when that has ended.
const char* StageFunctions::before_backward(size_t unit) {
  const UnitState& u = stage_.state(units_[unit]);
  const bool first = shards_gradients_ && !u.in_backward;
  const bool sharded = shards_parameters_ && u.parameters == ParameterState::sharded;
  of_[unit].enters_backward = first && (sharded || of_[unit].gathering);
  if (sharded) return "unshard";
  return first && !of_[unit].gathering ? "before_backward" : "";
}

const char* StageFunctions::of_unit_event(const Event& e, size_t unit) {
  const std::string_view what = e.what;
  const UnitState& u = stage_.state(units_[unit]);
  if (what == "before_backward") return before_backward(unit);
  if (what == "reduce") return "reduce_gradient";
  if (what == "update") return "update";
  if (what == "before_forward" || what == "prefetch")
    return shards_parameters_ && u.parameters == ParameterState::sharded ? "unshard" : "";
  if (shards_parameters_ && what.starts_with("after_") && u.full_parameter.defined()) passed_ = &u;
  return "";
}

const char* StageFunctions::of_collective(const Event& e, OfUnit& unit) {
  const bool begins = e.kind == EventKind::collective_begin;
  if (!begins && e.kind != EventKind::collective_end) return "";
  if (e.detail == unit.gradient_call)
    return begins ? "reduce_gradient" : shards_gradients_ ? "after_reduce" : "";
  if (e.detail != unit.parameter_call) return "";
  if (!shards_parameters_) return begins && gathers_updated_ ? "after_update" : "";
  unit.gathering = begins;
  if (begins) return "unshard";
  return std::exchange(unit.enters_backward, false) ? "before_backward" : "";
}

const char* StageFunctions::at(const Event& e) {
  const bool of_unit = e.kind == EventKind::unit;
  const bool of_collective_ =
      e.kind == EventKind::collective_begin || e.kind == EventKind::collective_end;
  resharded_ = false;
  if (e.kind != EventKind::phase && !of_unit && !of_collective_) return "";
  const UnitState* passed = std::exchange(passed_, nullptr);
  resharded_ = passed && !passed->full_parameter.defined();
  for (size_t i = 0; i < of_.size(); ++i) {
    const char* name = "";
    if (of_unit && e.unit == units_[i].name) name = of_unit_event(e, i);
    if (of_collective_) name = of_collective(e, of_[i]);
    if (*name) return name;
  }
  return "";
}

}  // namespace zl::recording
