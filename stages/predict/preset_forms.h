// Closed formulas for what one rank keeps and sends in real systems as they are shipped.
#pragma once

#include <optional>
#include <vector>

#include "stages/predict/prediction_rows.h"
#include "stages/variants/presets.h"

namespace zl {

// A setting takes the system's default where the spec has zerolab's. Throws InputError for settings
// that the formulas do not know: offload, and reproducible sums.
// `persistence_threshold`: [n] deepspeed-3 keeps parameters of at most so many in full.
struct PresetPlan {
  const Preset* stage;              // a table shows it in the place of a stage
  std::vector<MemoryRow> memory;    // of rank 0 on the device: only the predicted columns
  std::vector<TrafficRow> traffic;  // of gradients and parameters, per step: the same
  std::vector<int64_t> buckets;     // [n] the reductions of one micro-batch, in their order
};
PresetPlan predict(const Preset& preset, const TrainingSpec& spec,
                   std::optional<int64_t> persistence_threshold = {});

}  // namespace zl
