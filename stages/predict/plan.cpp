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

namespace {

int64_t bytes(const StagePlan& plan, std::optional<MemoryUse> use, int64_t MemoryRow::*column) {
  int64_t sum = 0;
  for (const MemoryRow& row : plan.memory)
    if (!use || (row.use == *use && row.pool == Pool::device)) sum += row.*column;
  return sum;
}

SettingCost difference(const StagePlan& with, const StagePlan& without) {
  const auto more = [&](const auto& bytes_of) { return bytes_of(with) - bytes_of(without); };
  const auto peak = [&](MemoryUse use) {
    return more([&](const StagePlan& p) { return bytes(p, use, &MemoryRow::predicted_peak); });
  };
  return {.rest = more([](const StagePlan& p) { return bytes(p, {}, &MemoryRow::predicted_rest); }),
          .parameter = peak(MemoryUse::parameter),
          .gradient = peak(MemoryUse::gradient),
          .communication = peak(MemoryUse::communication),
          .peak_total = more([](const StagePlan& p) { return p.peak_total; }),
          .sent = more([](const StagePlan& p) {
            int64_t sum = 0;
            for (const TrafficRow& row : p.traffic) sum += row.predicted_sent;
            return sum;
          })};
}

// The plan without limits and without the costs of settings.
StagePlan plan_unlimited(const TrainingSpec& spec, StageKind stage, int rank) {
  StagePlan plan{.stage = stage};
  TrainingSpec unlimited = with_stage(spec, stage);
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport dry = dry_run(unlimited, rank);
  const Prediction prediction = predict(unlimited, dry, formulas_apply(spec));
  plan.memory = memory_rows(rank, dry, prediction, dry);
  plan.traffic = traffic_rows(stage, {}, prediction, {.steps = 1});
  plan.moves = move_rows(rank, {}, prediction, {.steps = 1});
  plan.peak_total = dry.rest.peak_total();
  plan.peak_host = dry.host.peak_total();
  plan.init_peak_total = dry.init_peak_total;
  plan.checkpoint = checkpoint_bytes(prediction_input(unlimited), spec.device);
  return plan;
}

}  // namespace

StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank) {
  StagePlan plan = plan_unlimited(spec, stage, rank);
  const auto add_cost = [&](const char* name, auto Options::*setting) {
    TrainingSpec without = spec;
    without.engine.*setting = {};
    if (without.engine.*setting == spec.engine.*setting) return;
    plan.costs.push_back(difference(plan, plan_unlimited(without, stage, rank)));
    plan.costs.back().setting = name;
  };
  add_cost("overlap", &Options::overlap);
  add_cost("reproducible", &Options::reproducible);
  const TrainingSpec limited = with_stage(spec, stage);
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
