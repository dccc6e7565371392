// plan --parameters: the paper's closed formulas for model states, of any number of parameters.
#pragma once

#include <string>
#include <vector>

#include "stages/predict/closed_form.h"

namespace zl::cli {

struct ClosedPlan {
  double parameters;
  int ranks;
  Options options;
  int64_t device_memory;  // [B]; 0: no limit
  ElementBytes bytes() const;
  ModelStates of(StageKind stage) const { return model_states(stage, parameters, ranks, bytes()); }
  double sent_bytes(StageKind stage) const;
  CheckpointBytes checkpoint() const;
  bool fits(StageKind stage) const { return of(stage).total() <= double(device_memory); }
  bool any_fits(const std::vector<StageKind>& stages) const;
};

std::string closed_text(const ClosedPlan& plan, const std::vector<StageKind>& stages);
std::string closed_json(const ClosedPlan& plan, const std::vector<StageKind>& stages);

}  // namespace zl::cli
