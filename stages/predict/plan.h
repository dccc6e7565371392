// What a stage would keep and send on one rank, without running anything; and the tables of memory
// and traffic, which have measured numbers beside predicted ones where the stage was run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/predict/closed_form.h"
#include "stages/train/trainer.h"

namespace zl {

// One rank and use. [B]
struct MemoryRow {
  int rank;
  Pool pool;
  MemoryUse use;
  int64_t rest, peak, predicted_rest, predicted_peak;
  bool exact() const { return rest == predicted_rest && peak == predicted_peak; }
};

// One step that makes this communication: a skipped step makes none of those that follow an update.
// [n], and [B] as the ring algorithm sends them.
struct TrafficRow {
  Collective collective{};
  Purpose purpose{};
  std::string group = "";  // the label of its group of ranks; "": all ranks
  int64_t calls = 0, elements = 0, sent = 0;
  int64_t predicted_sent = 0, predicted_calls = 0, predicted_elements = 0;
  bool exact() const {
    return sent == predicted_sent && calls == predicted_calls && elements == predicted_elements;
  }
};

// One rank and kind of move, of all steps of a run or of one. [B]
struct MoveRow {
  int rank = 0;
  Move move{};
  int64_t number = 0, bytes = 0, predicted_number = 0, predicted_bytes = 0;
  bool exact() const { return number == predicted_number && bytes == predicted_bytes; }
};

// The steps of a run, by what they communicate.
struct StepCount {
  int64_t steps = 0, skipped = 0, nonfinite = 0;  // all; without an update; with a non-finite norm
  int64_t with(StageKind stage, Purpose purpose) const;  // how many communicate for this purpose
};
StepCount count(const std::vector<StepRecord>& steps);

// What the closed formulas take from a spec.
PredictionInput prediction_input(const TrainingSpec& spec);
// What a rank keeps and sends: as the closed formulas say where they apply to the model, otherwise
// as its dry run says. The dry run alone predicts activations of the device and workspace.
Prediction predict(const TrainingSpec& spec, const RankReport& dry, bool formulas_apply);

// Rows of nothing but zeros are left out.
std::vector<MemoryRow> memory_rows(int rank, const RankReport& measured,
                                   const Prediction& prediction);
// Totals over all steps of the run.
std::vector<TrafficRow> traffic_rows(StageKind stage, const CommunicationLog& log,
                                     const Prediction& predicted, const StepCount& count);
std::vector<MoveRow> move_rows(int rank, const MoveLog& measured, const Prediction& predicted,
                               const StepCount& count);

// ---- a plan ------------------------------------------------------------------------------------

// Of one rank. What a setting costs is the difference between plans with and without it.
struct StagePlan {
  StageKind stage;
  std::optional<OutOfMemory> out_of_memory = {};  // only where the spec has memory limits
  std::vector<MemoryRow> memory;                  // the measured columns are the dry run's
  std::vector<TrafficRow> traffic;                // the predicted columns only
  std::vector<MoveRow> moves;                     // likewise
  int64_t peak_total = 0, peak_host = 0, init_peak_total = 0;  // [B]
  CheckpointBytes checkpoint;
};
StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank);

TrainingSpec with_stage(TrainingSpec spec, StageKind stage);

}  // namespace zl
