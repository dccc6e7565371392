// What a run did beside the plan: each difference with its name.
#pragma once

#include "tutorials/zerolab/check/plan.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {

struct Difference {
  std::string text;       // one sentence
  bool harmless = false;  // it changes neither results nor volume by itself
};

// Of one rank and step: calls, and elements of the unsharded side.
struct TrafficOfPurpose {
  std::string collective, purpose;  // purpose: "other" of what the plan does not explain
  int64_t calls = 0, elements = 0, planned_calls = 0, planned_elements = 0;
};

struct TrafficVerdict {
  std::vector<TrafficOfPurpose> rows;
  std::vector<Difference> differences;
  std::vector<std::string> notes;  // what is as planned, but not obvious
};

struct TrafficCase {
  CheckedModel model;
  const SystemKind& system;
  const Config& config;
  int ranks;
  bool marked = false;  // the file marks its steps
};
TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls);

// The model with its units as the collectives of the run show them, where that explains sizes that
// the plan does not know: two units are one, a module is a unit, a parameter is there twice. Each
// adds its sentence.
CheckedModel as_wrapped(const TrafficCase& c, const std::vector<SeenCall>& calls,
                        std::vector<Difference>& differences);

}  // namespace zl::cli
