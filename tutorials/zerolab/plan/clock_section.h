// plan --machine: how long a step takes on a machine, by the clock of stages/predict/clock/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/predict/clock/clock_plan.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/report/comparison_report.h"

namespace zl::cli {

struct ClockFlags {
  std::string machine;  // a name or a path; "": no clock
  bool list = false, advise = false;
  std::optional<bool> overlap;
  Stragglers stragglers;
};
void add_clock_flags(Flags& flags, ClockFlags& options);

// The machine of --machine, with nodes of `ranks_per_node` ranks (0: as described). Throws
// UsageError if they are not full with so many ranks.
Machine planned_machine(const ClockFlags& options, int64_t ranks_per_node, int ranks);
// The plan of some stages on a machine. `any_of_them`: --stages was not given.
struct ClockPlan {
  const std::vector<StageKind>& stages;
  const GptTrainingSpec& spec;
  const Machine& machine;
  const ClockFlags& flags;
  bool any_of_them = false;
};
// Adds the seconds of each stage to the plan's text and its JSON document, and which stage to take;
// with --advise also the settings that are fastest. It fits if a stage fits the machine.
void add_clock(const ClockPlan& plan, PlanReport& report);

}  // namespace zl::cli
