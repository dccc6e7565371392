// What each stage does with one unit at each event of a step.
#include <algorithm>
#include <array>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/legend.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/step_trace.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

constexpr const char* kUnit = "h.0";
constexpr int64_t kAdamOperations = 16;  // of one element, as its kernel reports them

struct Row {
  const char* event;      // of the unit
  const char* functions;  // of the stage file that the schedule calls then
};
constexpr Row kRows[] = {{"before_forward", "unshard"},
                         {"after_forward", "reshard"},
                         {"before_backward", "unshard, before_backward"},
                         {"reduce", "reduce_gradient, after_reduce"},
                         {"after_backward", "reshard"},
                         {"update", "update, after_update"}};

struct Action {
  std::string style, text;
};

// Nothing, or what this event means for the unit's parameters and gradient.
std::vector<Action> action(const Moment& m) {
  const bool state = m.what == name(MemoryUse::parameter) || m.what == name(MemoryUse::gradient);
  const std::string bytes = with_commas(m.bytes) + " B";
  switch (m.kind) {
    case EventKind::allocate:
      if (state) return {{m.what, "+ " + bytes}};
      return {};
    case EventKind::release:
      if (state) return {{m.what, "− " + bytes}};
      return {};
    case EventKind::collective_end: {
      std::string text = m.what;
      std::ranges::replace(text, '_', '-');
      return {{"communication", text}, {"", "sends " + bytes}};
    }
    default: return {};
  }
}

// From the event of the unit to the next event of any unit.
std::vector<Action> actions(const std::vector<Moment>& moments, const char* event) {
  std::vector<Action> all;
  bool inside = false;
  int64_t updated = 0;  // [n] by Adam
  for (const Moment& m : moments) {
    if (m.kind == EventKind::unit) inside = m.unit == kUnit && m.what == event;
    if (m.kind == EventKind::phase) inside = false;
    if (!inside) continue;
    if (m.kind == EventKind::kernel && m.what == "adamw") updated += m.operations / kAdamOperations;
    std::ranges::move(action(m), std::back_inserter(all));
  }
  if (updated > 0) all.insert(all.begin(), {"optimizer_state", "Adam on " + with_commas(updated)});
  return all;
}

}  // namespace

std::string draw_unit_calls() {
  constexpr double kLeft = 232, kColumn = 132, kLine = 19;
  std::vector<std::vector<Moment>> runs;
  for (const StageKind stage : kStages) runs.push_back(trace_step(tiny_spec(stage, 4)));
  std::array<std::array<std::vector<Action>, 4>, std::size(kRows)> cells;
  std::array<double, std::size(kRows) + 1> top{84};
  for (size_t row = 0; row < std::size(kRows); ++row) {
    size_t most = 2;
    for (size_t stage = 0; stage < runs.size(); ++stage) {
      cells[row][stage] = actions(runs[stage], kRows[row].event);
      most = std::max(most, cells[row][stage].size());
    }
    top[row + 1] = top[row] + kLine * double(most) + 14;
  }
  Svg svg(
      "One block through one step: what each stage does at each event",
      "A table in the order of a step. Rows are the events of unit h.0 with the functions of the "
      "stage file that run then, columns the four stages. ddp only all-reduces and updates. "
      "zero3 also gathers the parameters before forward and backward, and frees them after.",
      top.back() + 8);
  draw_legend(svg, {16, 46},
              {MemoryUse::parameter, MemoryUse::gradient, MemoryUse::optimizer_state,
               MemoryUse::communication});
  for (size_t stage = 0; stage < runs.size(); ++stage)
    svg.text({kLeft + kColumn * double(stage), 74}, name(kStages[stage]), "bold");
  for (size_t row = 0; row < std::size(kRows); ++row) {
    svg.line({16, top[row]}, {744, top[row]}, "faint");
    svg.text({16, top[row] + 20}, kRows[row].event, "bold");
    svg.text({16, top[row] + 39}, kRows[row].functions, "mono");
    for (size_t stage = 0; stage < runs.size(); ++stage) {
      double y = top[row] + 20;
      for (const Action& action : cells[row][stage]) {
        const double x = kLeft + kColumn * double(stage);
        if (!action.style.empty()) svg.box({x, y - 10, 12, 12}, action.style);
        svg.text({x + 18, y}, action.text);
        y += kLine;
      }
    }
  }
  return svg.document();
}

}  // namespace zl::draw
