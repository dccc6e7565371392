// What a run did beside the plan: each difference with its name.
#pragma once

#include "tutorials/zerolab/check/plan.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {

// Whether it is harmless, because it changes neither results nor volume by itself; one sentence.
using Difference = std::pair<bool, std::string>;

struct CountedCalls {  // of a rank and step; elements of the unsharded side
  int64_t calls = 0, planned_calls = 0, elements = 0, planned_elements = 0;
};
struct TrafficVerdict {
  // By collective and purpose; "other": the plan does not explain it.
  std::map<std::pair<std::string, std::string>, CountedCalls> rows;
  std::vector<Difference> differences;
  std::set<std::string> notes;  // what is as planned, but not obvious
};

struct TrafficCase {
  CheckedModel model;
  std::string system;  // of kSystems
  const Config& config;
  int ranks;
  bool marked = false;  // the file marks its steps
  TrafficPlan plan = plan_traffic(system, model, config, ranks);
};
TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls);

// Takes the units as the collectives of the run show them, where that explains sizes that the plan
// does not know: weights are transposed, two units are one, a module is a unit, a parameter is
// there twice. Each adds its sentence.
void fit_units(TrafficCase& c, const std::vector<SeenCall>& calls, TrafficVerdict& verdict);

std::string list_of(const std::vector<std::string>& names);  // "root, h.0 and h.1"

}  // namespace zl::cli
