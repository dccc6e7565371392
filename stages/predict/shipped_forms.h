// Closed formulas for the presets of "zerolab": {"as": …}. They follow DeepSpeed's and PyTorch's
// rules for sizes alone, and know nothing of the files that carry the presets out.
#pragma once

#include "stages/predict/closed_form.h"

namespace zl {

// `in.stage` is a preset. units, unit_parameters and used_by are those of its grouping.
Prediction predict_as_shipped(const PredictionInput& in);

}  // namespace zl
