#include "stages/predict/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "stages/predict/dry_run.h"

namespace zl {

int64_t StepCount::with(StageKind stage, Purpose purpose) const {
  if (purpose == Purpose::check) return nonfinite;
  // Only sharded parameters are gathered in a skipped step.
  return purpose == Purpose::parameter && !shards_parameter(stage) ? steps - skipped : steps;
}

StepCount count(const std::vector<StepRecord>& steps) {
  StepCount count{.steps = int64_t(steps.size())};
  for (const StepRecord& r : steps) {
    count.skipped += r.skipped;
    count.nonfinite += !std::isfinite(r.grad_norm);
  }
  return count;
}

PredictionInput prediction_input(const TrainingSpec& spec) {
  const auto model = spec.new_model();  // its shapes only: nothing is allocated
  const Options& o = spec.engine;
  PredictionInput in{.options = o,
                     .ranks = spec.ranks,
                     .scratch = spec.uses_scratch(),
                     .units = padded_unit_sizes(model->units(), spec.ranks, o),
                     .kept_inputs = spec.checkpointed_rows};
  for (int64_t& n : in.kept_inputs) n *= spec.micro_batch;
  for (const Unit& u : model->units()) {
    in.frozen.push_back(!std::ranges::all_of(u.parameters, &Parameter::requires_grad));
    for (const Parameter* p : u.parameters) in.parameters += p->numel();
  }
  return in;
}

Prediction predict(const TrainingSpec& spec, const RankReport& dry, bool formulas_apply) {
  Prediction p = predict(prediction_input(spec));
  for (const auto& [pool, bytes] :
       {std::pair{Pool::device, &p.device}, {Pool::host, &p.host}, {Pool::disk, &p.disk}})
    for (int use = 0; use < kMemoryUses; ++use) {
      if (formulas_apply && has_closed_formula(MemoryUse(use), pool)) continue;
      bytes->rest[size_t(use)] = dry.of(pool).live(MemoryUse(use));
      bytes->peak[size_t(use)] = dry.of(pool).peak(MemoryUse(use));
    }
  if (formulas_apply) return p;
  // The dry run of the peaks has at most three micro-batches, and its gradients are finite.
  if (spec.engine.reproducible) {  // the losses of all micro-batches are gathered together
    int64_t& peak = p.device.peak[size_t(MemoryUse::communication)];
    peak = std::max(peak, spec.engine.accumulation * spec.ranks * 8);
  }
  TrainingSpec unlimited = spec;
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport step = dry_run(unlimited, 0, spec.engine.accumulation);
  p.traffic = step.log;
  p.moves = step.moves;  // those of an update are of no pass, so that their formula applies
  p.traffic.add(Collective::all_gather, Purpose::check, spec.ranks, spec.ranks * 8, spec.ranks);
  return p;
}

std::vector<MemoryRow> memory_rows(int rank, const RankReport& measured,
                                   const Prediction& prediction) {
  std::vector<MemoryRow> rows;
  for (const Pool pool : {Pool::device, Pool::host, Pool::disk})
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      const MemoryLedger& seen = measured.of(pool);
      const MemoryRow row{.rank = rank,
                          .pool = pool,
                          .use = use,
                          .rest = seen.live(use),
                          .peak = seen.peak(use),
                          .predicted_rest = prediction.of(pool).rest_of(use),
                          .predicted_peak = prediction.of(pool).peak_of(use)};
      if (row.rest || row.peak || row.predicted_rest || row.predicted_peak) rows.push_back(row);
    }
  return rows;
}

std::vector<TrafficRow> traffic_rows(StageKind stage, const CommunicationLog& log,
                                     const Prediction& predicted, const StepCount& count) {
  std::map<TrafficKey, TrafficRow> rows;
  const auto row = [&](const TrafficKey& key) -> TrafficRow& {
    TrafficRow& r = rows[key];
    r.collective = key.collective, r.purpose = key.purpose, r.group = key.group;
    return r;
  };
  for (const auto& [key, t] : log.rows()) {
    TrafficRow& r = row(key);
    r.calls = t.calls, r.elements = t.elements, r.sent = t.sent_bytes();
  }
  for (const auto& [key, t] : predicted.traffic.rows()) {
    const int64_t times = count.with(stage, key.purpose);
    if (times == 0 && !rows.contains(key)) continue;
    TrafficRow& r = row(key);
    r.predicted_calls = times * t.calls, r.predicted_elements = times * t.elements;
    r.predicted_sent = times * t.sent_bytes_times_n / t.ranks;
  }
  std::vector<TrafficRow> list;
  for (const auto& [key, r] : rows) list.push_back(r);
  return list;
}

std::vector<MoveRow> move_rows(int rank, const MoveLog& measured, const Prediction& predicted,
                               const StepCount& count) {
  std::vector<MoveRow> rows;
  for (int i = 0; i < kMoves; ++i) {
    const Move move = Move(i);
    const MoveLog::Total &seen = measured.of(move), &step = predicted.moves.of(move),
                         &update = predicted.update_moves.of(move);
    const MoveRow row{.rank = rank,
                      .move = move,
                      .number = seen.number,
                      .bytes = seen.bytes,
                      .predicted_number = count.steps * step.number - count.skipped * update.number,
                      .predicted_bytes = count.steps * step.bytes - count.skipped * update.bytes};
    if (row.number || row.predicted_number) rows.push_back(row);
  }
  return rows;
}

// ---- a plan ------------------------------------------------------------------------------------

TrainingSpec with_stage(TrainingSpec spec, StageKind stage) {
  spec.engine.stage = stage;
  return spec;
}

StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank) {
  const TrainingSpec limited = with_stage(spec, stage);
  TrainingSpec unlimited = limited;
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport dry = dry_run(unlimited, rank);
  const Prediction prediction = predict(unlimited, dry, formulas_apply(spec));
  StagePlan plan{.stage = stage,
                 .memory = memory_rows(rank, dry, prediction),
                 .traffic = traffic_rows(stage, {}, prediction, {.steps = 1}),
                 .moves = move_rows(rank, {}, prediction, {.steps = 1}),
                 .peak_total = dry.rest.peak_total(),
                 .peak_host = dry.host.peak_total(),
                 .init_peak_total = dry.init_peak_total,
                 .checkpoint = checkpoint_bytes(prediction_input(unlimited), spec.device)};
  if (limited.device_memory > 0 || limited.host_memory > 0) {
    try {
      dry_run(limited, rank);
    } catch (const OutOfMemory& e) {
      plan.out_of_memory = e;
    }
  }
  return plan;
}

}  // namespace zl
