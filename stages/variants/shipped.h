// Real systems as they are shipped: the settings that they take where a file gives none, and what
// they gather and reduce together. Source: DeepSpeed 0.19.8 and PyTorch 2.15, in the files that
// stages/variants/ names.
#pragma once

#include "stages/options.h"

namespace zl {

// Whether this stage is a preset of "zerolab": {"as": …}.
bool is_as_shipped(StageKind kind);

// For a preset: the options with its system's settings for those that are ours. Options of other
// stages are returned as they are. Throws InputError for a setting that the preset does not
// imitate.
EngineOptions as_shipped(EngineOptions options);

// Whether both add the squares of the gradient in the same order: the norm goes by shards, and a
// preset may have others than its parent.
bool same_norm_order(StageKind a, StageKind b);

// For reports: how a preset differs from its parent, with formulas, and what of the system it does
// not imitate. e, g, c: bytes of a parameter, of a gradient, and of a gradient while it is
// communicated; A: micro-batches per step.
const char* difference_to_paper(StageKind kind);
const char* not_imitated(StageKind kind);

// What the stage of these options gathers and reduces together.
MakeGrouping grouping_of(const EngineOptions& options);

}  // namespace zl
