// The same seed and data under several stages: what they share bit for bit, and what each keeps and
// sends.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stages/predict/closed_form.h"
#include "stages/train/trainer.h"

namespace zl {

struct OutOfMemoryReport {
  int rank;
  Pool pool;
  std::string unit, phase;
  int64_t asked;  // [B]
};

// One row of a memory table: one rank and use, measured and predicted. [B]
struct MemoryRow {
  int rank;
  Pool pool;
  MemoryUse use;
  int64_t rest, peak, predicted_rest, predicted_peak;
  bool exact() const { return rest == predicted_rest && peak == predicted_peak; }
};

// One row of a traffic table, of one step that makes this communication (what follows an update
// does not happen in a step that is skipped). [n], [B] as the ring sends them.
struct TrafficRow {
  Collective collective;
  Purpose purpose;
  int64_t calls, elements, sent, predicted_sent, predicted_calls, predicted_elements;
  bool exact() const {
    return sent == predicted_sent && calls == predicted_calls && elements == predicted_elements;
  }
};

// The steps of a run, by what they communicate.
struct StepCount {
  int64_t steps = 0, skipped = 0,
          nonfinite = 0;  // all; without an update; whose gradient is not finite
  // How many of them communicate for this purpose.
  int64_t with(StageKind stage, Purpose purpose) const;
};
StepCount count(const std::vector<StepRecord>& steps);

struct StageOutcome {
  StageKind stage;
  bool listed = true;                              // false: it ran for others to be compared with
  std::optional<OutOfMemoryReport> out_of_memory;  // then nothing below is set
  std::vector<StepRecord> steps;
  std::vector<float> weights;
  uint64_t weights_hash = 0;
  std::vector<MemoryRow> memory;  // all ranks; rows of nothing but zeros are left out
  std::vector<int64_t> peak_total, predicted_peak_total,
      init_peak_total;                                  // by rank, of the device pool
  std::vector<int64_t> peak_host, predicted_peak_host;  // by rank, of the host pool
  std::vector<TrafficRow> traffic;  // rank 0; ranks that differ make it not exact
  bool traffic_equal_on_all_ranks = true;
  double seconds_per_step = 0;  // median
  std::vector<double> waiting;  // [s] per step that each rank waits for the others

  // The first stage that ran of those that promise the same bits; itself if no other did.
  StageKind promised_equal_to = StageKind::ddp;
  bool bitwise_equal = false, bitwise_equal_to_ddp = false;  // losses, norms and weights
  double max_abs_difference_to_ddp = 0;                      // of the weights
  bool predictions_exact() const;
};

struct Comparison {
  std::vector<StageOutcome> stages;  // ddp first
  int64_t parameters = 0;            // [n] of the model
  bool bits_promised = true;  // false: NCCL adds as it likes, and stages are equal but for rounding
  bool any_fits() const;      // of those that were listed
  bool ok() const;  // one fits, and every equality, if promised, and every prediction holds
};

// Called on every rank of every stage that runs: before its first step, and after its last.
struct StageHooks {
  std::function<void(StageKind, RankTraining&)> at_start, at_end;
};

// Runs `spec` once per stage, ddp first and always; with several micro-batches per step zero3
// brings zero2, whose bits it promises. Stages that do not fit spec.device_memory are reported as
// such.
Comparison compare_stages(const TrainingSpec& spec, std::vector<StageKind> stages,
                          const std::function<void(StageKind, const StepRecord&)>& on_step = {},
                          const StageHooks& hooks = {});

// What the formulas and the dry run say of one rank, without running anything.
struct StagePlan {
  StageKind stage;
  std::optional<OutOfMemoryReport> out_of_memory;  // with spec.device_memory only
  std::vector<MemoryRow> memory;    // rest and peak as predicted; measured columns from the dry run
  std::vector<TrafficRow> traffic;  // the predicted columns only
  int64_t peak_total = 0, peak_host = 0, init_peak_total = 0;
};
StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank);

}  // namespace zl
