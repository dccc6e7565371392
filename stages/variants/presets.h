// Real systems as they are shipped: DeepSpeed 0.19.8 (stage_1_and_2.py, stage3.py,
// parameter_offload.py) and PyTorch 2.15 (reducer.cpp, fully_shard). They are predicted, not run:
// stages/predict/preset_forms.h has their formulas.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stages/options.h"

namespace zl {

struct Preset {
  const char* name;        // "deepspeed-1"
  StageKind parent;        // the stage that it changes
  const char* sentence;    // for --help
  std::string difference;  // to the parent. e, g, c: bytes of a parameter, of a gradient, and of a
                           // gradient while it is communicated; A: micro-batches per step
  std::string left_out;    // what the system does and the formulas do not know
};
std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);  // null: there is none
inline const char* name(const Preset* preset) { return preset->name; }

}  // namespace zl
