#include "stages/predict/prediction_rows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "stages/predict/dry_run.h"
#include "stages/variants/groups.h"

namespace zl {

int64_t StepCount::with(StageKind stage, Purpose purpose) const {
  if (purpose == Purpose::check) return nonfinite;
  const bool after_update = purpose == Purpose::parameter && !shards_parameter(stage);
  return after_update ? steps - skipped : steps;
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
                     .frozen = {},
                     .kept_inputs = {.elements = spec.checkpointed_rows,
                                     .dtype = o.precision,
                                     .ranks = spec.ranks,
                                     .partitioned = o.partition_activations,
                                     .on_host = o.cpu_checkpointing}};
  for (int64_t& n : in.kept_inputs.elements) n *= spec.micro_batch;
  for (const Unit& u : model->units()) {
    in.frozen.push_back(!std::ranges::all_of(u.parameters, &Parameter::requires_grad));
    for (const Parameter* p : u.parameters) in.parameters += p->numel();
  }
  return in;
}

Prediction predict(const TrainingSpec& spec, const RankReport& dry, bool formulas_apply) {
  if (formulas_apply) return predict(prediction_input(spec));
  Prediction p;
  for (int i = 0; i < kMemoryUses; ++i) {
    const size_t use = size_t(i);
    p.device.rest[use] = dry.rest.live(MemoryUse(i)),
    p.device.peak[use] = dry.rest.peak(MemoryUse(i));
    p.host.rest[use] = dry.host.live(MemoryUse(i)), p.host.peak[use] = dry.host.peak(MemoryUse(i));
    p.disk.rest[use] = dry.disk.live(MemoryUse(i)), p.disk.peak[use] = dry.disk.peak(MemoryUse(i));
  }
  // The dry run of the peaks has at most three micro-batches, and its gradients are finite.
  if (spec.engine.reproducible) {  // the losses of all micro-batches are gathered together
    int64_t& peak = p.device.peak[size_t(MemoryUse::communication)];
    peak = std::max(peak, spec.engine.accumulation * spec.ranks * 8);
  }
  TrainingSpec unlimited = spec;
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport step = dry_run(unlimited, 0, spec.engine.accumulation);
  p.traffic = step.log;
  p.moves = step.moves;
  // An update's part is of no pass.
  p.update_moves = predict(prediction_input(spec)).update_moves;
  p.traffic.add(Collective::all_gather, Purpose::check, spec.ranks, spec.ranks * 8, spec.ranks);
  return p;
}

std::vector<MemoryRow> memory_rows(int rank, const RankReport& measured,
                                   const Prediction& prediction, const RankReport& dry) {
  std::vector<MemoryRow> rows;
  for (const Pool pool : {Pool::device, Pool::host, Pool::disk}) {
    const MemoryLedger &seen = measured.of(pool), &dry_seen = dry.of(pool);
    const Prediction::PoolBytes& closed = prediction.of(pool);
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      const bool formula_says = has_closed_formula(use, pool);
      const MemoryRow row{
          .rank = rank,
          .pool = pool,
          .use = use,
          .rest = seen.live(use),
          .peak = seen.peak(use),
          .predicted_rest = formula_says ? closed.rest_of(use) : dry_seen.live(use),
          .predicted_peak = formula_says ? closed.peak_of(use) : dry_seen.peak(use)};
      if (row.rest || row.peak || row.predicted_rest || row.predicted_peak) rows.push_back(row);
    }
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

}  // namespace zl
