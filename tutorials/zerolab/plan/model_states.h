// plan --parameters: the paper's closed formulas for model states (Rajbhandari et al. 2020,
// arXiv:1910.02054, figure 1 and table 1), of any number of parameters and without a model.
#pragma once

#include <vector>

#include "stages/options.h"
#include "tutorials/zerolab/report/comparison_report.h"

namespace zl::cli {

// `device_memory`: [B] of a rank; 0: no limit.
PlanReport model_states_report(double parameters, int ranks, const Options& options,
                               const std::vector<StageKind>& stages, int64_t device_memory);

}  // namespace zl::cli
