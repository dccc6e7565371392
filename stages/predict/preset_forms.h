// Closed formulas for what one rank keeps and sends in real systems as they are shipped.
//
// With rho = (N-1)/N, Psi parameters, A micro-batches per step, and e and g bytes of a parameter
// and of a gradient that is communicated, a rank sends per step
//   DeepSpeed, stages 1 and 2   rho (2 g A' + e) Psi; A' is 1 in stage 1, and A in stage 2
//   DeepSpeed, stage 3          rho A (e + (1 - f) e + g) Psi; f is the part that is kept between
//                               forward and backward, and small parameters are gathered once
//   PyTorch's fully_shard       what zero3 sends; without reshard each unit is gathered once
//   PyTorch's DDP               2 rho g Psi, and its buckets take g Psi more memory
#pragma once

#include <optional>
#include <vector>

#include "stages/predict/plan.h"
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
