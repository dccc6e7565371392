// What a stage would keep and send on one rank, without running anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/predict/prediction_rows.h"

namespace zl {

struct OutOfMemoryReport {
  int rank;
  Pool pool;
  std::string unit, phase;
  int64_t asked;  // [B]
};
OutOfMemoryReport out_of_memory_report(const OutOfMemory& error);

struct StagePlan {
  StageKind stage;
  std::optional<OutOfMemoryReport> out_of_memory;  // only where the spec has memory limits
  std::vector<MemoryRow> memory;                   // the measured columns are the dry run's
  std::vector<TrafficRow> traffic;                 // the predicted columns only
  int64_t peak_total = 0, peak_host = 0, init_peak_total = 0;  // [B]
  CheckpointBytes checkpoint;
};
StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank);

TrainingSpec with_stage(TrainingSpec spec, StageKind stage);

}  // namespace zl
