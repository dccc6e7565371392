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

// [B] of one rank by which a setting changes a plan; below 0: it saves them.
struct SettingCost {
  std::string setting;                                     // "overlap", as in Options
  int64_t rest = 0;                                        // of both pools
  int64_t parameter = 0, gradient = 0, communication = 0;  // at their peaks on the device
  int64_t peak_total = 0;                                  // on the device
  int64_t sent = 0;                                        // per step
  bool operator==(const SettingCost&) const = default;
};

struct StagePlan {
  StageKind stage;
  std::optional<OutOfMemoryReport> out_of_memory;  // only where the spec has memory limits
  std::vector<MemoryRow> memory;                   // the measured columns are the dry run's
  std::vector<TrafficRow> traffic;                 // the predicted columns only
  std::vector<MoveRow> moves;                      // likewise
  int64_t peak_total = 0, peak_host = 0, init_peak_total = 0;  // [B]
  CheckpointBytes checkpoint;
  std::vector<SettingCost> costs;  // of overlap and of reproducible sums, where the spec has them
};
StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank);

TrainingSpec with_stage(TrainingSpec spec, StageKind stage);

}  // namespace zl
