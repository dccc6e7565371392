// The same seed and data under several stages: what they share bit for bit, and what each keeps and
// sends.
#pragma once

#include <optional>
#include <vector>

#include "stages/diagnosis/diagnosis.h"
#include "stages/predict/plan.h"
#include "stages/train/gradient_bound.h"
#include "stages/train/trainer.h"

namespace zl {

struct StageOutcome {
  StageKind stage;
  bool listed = true;                        // false: it ran only for others to be compared with it
  std::optional<OutOfMemory> out_of_memory;  // then nothing below is set
  std::vector<StepRecord> steps;
  std::vector<float> weights;
  FlatValues gradient;  // the first step's, while it is compared with ddp's; then empty
  uint64_t weights_hash = 0;
  std::vector<MemoryRow> memory;  // of all ranks
  // By rank, of the device pool and of the host pool. [B]
  std::vector<int64_t> peak_total, predicted_peak_total, init_peak_total;
  std::vector<int64_t> peak_host, predicted_peak_host;
  std::vector<TrafficRow> traffic;  // of rank 0
  bool traffic_equal_on_all_ranks = true;
  std::vector<MoveRow> moves;            // of all ranks and all steps
  double seconds_per_step = 0;           // median
  std::vector<TimeSpent> communication;  // of each rank, in all steps

  // Of the stages that ran and promise the same bits, the first; itself if there is no other, or if
  // a variant does not promise bits.
  StageKind promised_equal_to = StageKind::ddp;
  // Losses, norms and weights; norms to rounding where they are added in another order.
  bool bitwise_equal = false, bitwise_equal_to_ddp = false;
  double max_abs_difference_to_ddp = 0;  // of the weights
  // How far the first step's gradient is from ddp's, as a part of what rounding allows, and in
  // zero3_qgz its 4 bits: with several micro-batches per step, and in variants that add otherwise.
  std::optional<GradientDeviation> gradient_deviation;
  // In zero3_qwz: how far its gathered weights are from its shards', as a part of what 8 bits
  // allow.
  std::optional<double> weights_part_of_bound;
  bool gradient_within_bound() const;  // these two are at most 1
  bool predictions_exact() const;
  // The first step whose loss is not finite; one past the last where only the weights are not; 0:
  // all are. NaN equals NaN, so that the bits of such a run prove nothing.
  int64_t first_nonfinite() const;
  // Where a stage of the comparison has wrong values: what is wrong with this one, if anything is.
  Diagnosis diagnosis;
};

struct Comparison {
  std::vector<StageOutcome> stages;  // ddp first
  int64_t parameters = 0;            // [n] of the model
  bool bits_promised = true;         // false: NCCL adds, and stages are equal but for rounding
  bool any_fits() const;             // of the listed stages
  // One fits; losses and weights are finite; every promised equality, every bound and every
  // prediction holds.
  bool ok() const;
};

// Runs `spec` once per stage, ddp first and always. With several micro-batches per step stages that
// shard gradients bring zero2, because they promise the same bits, and zero2 alone brings zero3;
// the first step's gradient of each stage must be within rounding of ddp's. Stages that do not fit
// the spec's memory are reported as such. `callbacks`: of every run; Trainer::spec() tells which.
Comparison compare_stages(const TrainingSpec& spec, std::vector<StageKind> stages,
                          const TrainingCallbacks& callbacks = {});

}  // namespace zl
