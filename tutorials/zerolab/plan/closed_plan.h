// plan --parameters: the paper's closed formulas for model states, of any number of parameters.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/closed_form.h"

namespace zl::cli {

struct ClosedRun {
  double parameters;
  int ranks;
  Options options;
  int64_t device_memory;  // [B]; 0: no limit
};
struct ClosedPlan {
  std::string text, json;
  bool fits;  // one of the stages
};
ClosedPlan closed_plan(const ClosedRun& run, const std::vector<StageKind>& stages);

}  // namespace zl::cli
