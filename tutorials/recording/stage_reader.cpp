#include "tutorials/recording/stage_reader.h"

#include <memory>
#include <string_view>
#include <utility>

namespace zl::recording {

StageReader::StageReader(StageKind kind, const Stage& stage, const std::vector<Unit>& units)
    : stage_(stage),
      units_(units),
      shards_gradients_(shards_gradient(kind)),
      shards_parameters_(shards_parameter(kind)),
      gathers_updated_(shards_optimizer(kind) && !shards_parameter(kind)) {
  for (const Unit& unit : units)
    of_.push_back({unit.name + " parameter", unit.name + " gradient",
                   stage.state(unit).parameters == ParameterState::unsharding ? '~' : '#'});
}

// In zero3 the unit is unsharded first: before_backward runs when that has ended.
const char* StageReader::before_backward(size_t unit) {
  const UnitState& u = stage_.state(units_[unit]);
  const bool first = shards_gradients_ && !u.in_backward;
  const bool sharded = shards_parameters_ && u.parameters == ParameterState::sharded;
  const bool gathering = of_[unit].parameter == '~';
  of_[unit].gradient = '+';
  of_[unit].enters_backward = first && (sharded || gathering);
  if (sharded) return "unshard";
  return first && !gathering ? "before_backward" : "";
}

const char* StageReader::of_unit_event(const Event& e, size_t unit) {
  const std::string_view what = e.what;
  const UnitState& u = stage_.state(units_[unit]);
  of_[unit].updated = what == "update";
  if (what == "before_backward") return before_backward(unit);
  if (what == "reduce") return "reduce_gradient";
  if (what == "update") return "update";
  if (what == "before_forward" || what == "prefetch")
    return shards_parameters_ && u.parameters == ParameterState::sharded ? "unshard" : "";
  if (shards_parameters_ && what.starts_with("after_") && u.full_parameter.defined()) passed_ = &u;
  return "";
}

const char* StageReader::of_collective(const Event& e, OfUnit& unit) {
  const bool begins = e.kind == EventKind::collective_begin;
  if (e.detail == unit.gradient_call) {
    if (begins) return "reduce_gradient";
    unit.gradient = e.what == std::string_view("all_reduce") ? '#' : '~';
    return shards_gradients_ ? "after_reduce" : "";
  }
  if (e.detail != unit.parameter_call) return "";
  unit.parameter = begins ? '~' : '#';
  if (!shards_parameters_) return begins && gathers_updated_ ? "after_update" : "";
  if (begins) return "unshard";
  return std::exchange(unit.enters_backward, false) ? "before_backward" : "";
}

const char* StageReader::at(const Event& e) {
  resharded_ = false;
  if (!is_recorded(e)) return "";
  const UnitState* passed = std::exchange(passed_, nullptr);
  resharded_ = passed && !passed->full_parameter.defined();
  const char* function = "";
  for (size_t i = 0; i < of_.size(); ++i) {
    if (std::exchange(of_[i].updated, false)) of_[i].gradient = '0';
    const char* of_this = "";
    if (e.kind == EventKind::unit && e.unit == units_[i].name) of_this = of_unit_event(e, i);
    if (is_collective(e)) of_this = of_collective(e, of_[i]);
    if (*of_this) function = of_this;
  }
  return function;
}

std::vector<Row> StageReader::rows() const {
  std::vector<Row> all;
  const auto letter = [](char full, bool has_full, bool has_shard) {
    return has_full ? full : has_shard ? '/' : '.';
  };
  for (const Unit& unit : units_) {
    const UnitState& u = stage_.state(unit);
    const OfUnit& of = of_[size_t(unit.index)];
    const int64_t updated = u.optimizer ? u.optimizer->numel() : 0;
    all.push_back({unit.name,
                   {letter(of.parameter, u.full_parameter.defined(), u.parameter_shard.defined()),
                    ' ', letter(of.gradient, u.full_gradient.defined(), u.gradient_shard.defined()),
                    ' ', letter('#', updated == u.partition.full(), updated > 0)}});
  }
  return all;
}

View holdings(const Stage& stage, const std::vector<Unit>& units, EventStream& events) {
  const auto reader = std::make_shared<StageReader>(stage.options().stage, stage, units);
  events.listen([reader](const Event& event) { reader->at(event); });
  return {[reader] { return reader->rows(); },
          {"parameter, gradient, optimizer   # full   / shard   . none   * in flight",
           "0 full, all zero   + full, not reduced   ~ full, only the local slice valid"}};
}

}  // namespace zl::recording
