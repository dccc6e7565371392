#include "stages/predict/plan.h"

#include "stages/predict/dry_run.h"

namespace zl {

OutOfMemoryReport out_of_memory_report(const OutOfMemory& e) {
  return {e.rank, e.pool, e.unit, e.phase, e.asked};
}

TrainingSpec with_stage(TrainingSpec spec, StageKind stage) {
  spec.engine.stage = stage;
  return spec;
}

StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank) {
  StagePlan plan{.stage = stage};
  const TrainingSpec limited = with_stage(spec, stage);
  TrainingSpec unlimited = limited;
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport dry = dry_run(unlimited, rank);
  const Prediction prediction = predict(limited, dry, formulas_apply(spec));
  plan.memory = memory_rows(rank, dry, prediction, dry);
  plan.traffic = traffic_rows(stage, spec.ranks, {}, prediction.traffic, {.steps = 1});
  plan.peak_total = dry.rest.peak_total();
  plan.peak_host = dry.host.peak_total();
  plan.init_peak_total = dry.init_peak_total;
  plan.checkpoint = checkpoint_bytes(prediction_input(limited), spec.device);
  if (limited.device_memory > 0 || limited.host_memory > 0) {
    try {
      dry_run(limited, rank);
    } catch (const OutOfMemory& e) {
      plan.out_of_memory = out_of_memory_report(e);
    }
  }
  return plan;
}

}  // namespace zl
