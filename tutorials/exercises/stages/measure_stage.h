// Runs a student's stage, for measure() of exercises 05 to 07.
#pragma once

#include "stages/stage.h"
#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises {

// What the record holds, of each rank r where a name ends with r:
//   "loss", "norm"     one number per step
//   "gradient r"       [n] the shards of all units after the last backward pass of step 1
//   "weights r"        [n] all parameters in full after step 1; "last weights r": at the end
//   "kept weights r"   [n] the shards that the rank keeps after step 1
//   "rest r", "peak r" [B] by MemoryUse, between steps and at the peak
//   "traffic r"        rows of collective, purpose, calls, elements, N x bytes
//   "calls r"          rows of StageCall
//   "tensors r"        [B] that tensors take from the system, of a run without steps
Record measure_stage(StageKind kind, const std::string& check, const CheckOptions& options);

}  // namespace zl::exercises
