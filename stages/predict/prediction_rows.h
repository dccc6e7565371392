// Tables of memory and traffic with measured numbers beside predicted ones.
#pragma once

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
// as its dry run says.
Prediction predict(const TrainingSpec& spec, const RankReport& dry, bool formulas_apply);

// Activations of the device and workspace are predicted by the dry run, everything else by
// `prediction`. Rows of nothing but zeros are left out.
std::vector<MemoryRow> memory_rows(int rank, const RankReport& measured,
                                   const Prediction& prediction, const RankReport& dry);
// Totals over all steps of the run.
std::vector<TrafficRow> traffic_rows(StageKind stage, const CommunicationLog& log,
                                     const Prediction& predicted, const StepCount& count);
std::vector<MoveRow> move_rows(int rank, const MoveLog& measured, const Prediction& predicted,
                               const StepCount& count);

}  // namespace zl
