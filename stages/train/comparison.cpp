#include "stages/train/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "nn/gpt.h"

namespace zl {
namespace {

PredictionInput prediction_input(const TrainingSpec& spec, StageKind stage) {
  Gpt model(spec.model);  // its shapes only: nothing is allocated
  return {.stage = stage,
          .ranks = spec.ranks,
          .micro_batches = spec.config.accumulation,
          .reduce_bucket_size = spec.config.reduce_bucket_size,
          .dtype = spec.config.precision,
          .gradient_dtype = spec.config.grad_accum_dtype,
          .communication_dtype = spec.config.communication_data_type,
          .optimizer = optimizer_bytes(spec.config.optimizer, spec.config.precision),
          .scratch = spec.uses_scratch(),
          .offload_optimizer = spec.config.offload_optimizer,
          .units = padded_unit_sizes(model.units(), spec.ranks)};
}

TrainingSpec with_stage(TrainingSpec spec, StageKind stage) {
  spec.config.stage = stage;
  return spec;
}

// Measured against predicted: the closed formula where there is one, else the dry run.
std::vector<MemoryRow> memory_rows(int rank, const RankReport& measured, const Prediction& formula,
                                   const RankReport& dry) {
  std::vector<MemoryRow> rows;
  for (const Pool pool : {Pool::device, Pool::host}) {
    const bool host = pool == Pool::host;
    const MemoryLedger &seen = host ? measured.host : measured.rest,
                       &dry_seen = host ? dry.host : dry.rest;
    const Prediction::PoolBytes& closed = host ? formula.host : formula.device;
    for (int i = 0; i < kMemoryUses; ++i) {
      const MemoryUse use = MemoryUse(i);
      MemoryRow row{
          .rank = rank,
          .pool = pool,
          .use = use,
          .rest = seen.live(use),
          .peak = seen.peak(use),
          .predicted_rest = has_closed_formula(use) ? closed.rest_of(use) : dry_seen.live(use),
          .predicted_peak = has_closed_formula(use) ? closed.peak_of(use) : dry_seen.peak(use)};
      if (row.rest || row.peak || row.predicted_rest || row.predicted_peak) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<TrafficRow> traffic_rows(StageKind stage, int ranks, const CommunicationLog& log,
                                     const CommunicationLog& formula, const StepCount& count) {
  std::map<std::pair<Collective, Purpose>, TrafficRow> rows;
  const auto row = [&](const auto& key) -> TrafficRow& {
    return rows.try_emplace(key, TrafficRow{key.first, key.second, 0, 0, 0, 0, 0, 0}).first->second;
  };
  for (const auto& [key, t] : log.rows()) {
    TrafficRow& r = row(key);
    r.calls = t.calls, r.elements = t.elements, r.sent = t.sent_bytes_times_n / ranks;
  }
  for (const auto& [key, t] : formula.rows()) {
    const int64_t times = count.with(stage, key.second);
    if (times == 0 && !rows.contains(key)) continue;
    TrafficRow& r = row(key);
    r.predicted_calls = times * t.calls, r.predicted_elements = times * t.elements;
    r.predicted_sent = times * t.sent_bytes_times_n / ranks;
  }
  std::vector<TrafficRow> list;
  for (const auto& [key, r] : rows) list.push_back(r);
  return list;
}

// Totals of a run to one step, for people and JSON; exact() compares totals before this.
void per_step(StageKind stage, std::vector<TrafficRow>& rows, const StepCount& count) {
  for (TrafficRow& r : rows) {
    const int64_t steps = std::max<int64_t>(1, count.with(stage, r.purpose));
    for (int64_t* value : {&r.calls, &r.elements, &r.sent, &r.predicted_calls,
                           &r.predicted_elements, &r.predicted_sent})
      *value /= steps;
  }
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_bits(const StageOutcome& a, const StageOutcome& b) {
  if (a.steps.size() != b.steps.size() || a.weights.size() != b.weights.size()) return false;
  for (size_t i = 0; i < a.steps.size(); ++i)
    if (!same_bits(a.steps[i].loss, b.steps[i].loss) ||
        !same_bits(a.steps[i].grad_norm, b.steps[i].grad_norm))
      return false;
  return std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(double(a[i]) - double(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// E1: with one micro-batch per step all four agree; E2: with several, ddp = zero1 and zero2 =
// zero3.
bool promise_the_same(StageKind a, StageKind b, int64_t micro_batches) {
  return micro_batches == 1 || (a >= StageKind::zero2) == (b >= StageKind::zero2);
}

// What is listed, and what that is compared with, in the order of the stages.
std::vector<StageKind> to_run(std::vector<StageKind> stages, int64_t micro_batches) {
  const bool zero3 = std::ranges::find(stages, StageKind::zero3) != stages.end();
  if (micro_batches > 1 && zero3) stages.push_back(StageKind::zero2);
  stages.push_back(StageKind::ddp);
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

OutOfMemoryReport report(const OutOfMemory& e) {
  return {e.rank, e.pool, e.unit, e.phase, e.asked};
}

using OnStep = std::function<void(StageKind, const StepRecord&)>;

StageOutcome run_stage(const TrainingSpec& spec, StageKind stage, const OnStep& on_step,
                       const StageHooks& hooks) {
  StageOutcome outcome{.stage = stage};
  TrainingResult result;
  try {
    result = run_training(spec, {.at_start =
                                     [&](RankTraining& training) {
                                       if (hooks.at_start) hooks.at_start(stage, training);
                                     },
                                 .on_step =
                                     [&](const StepRecord& r) {
                                       if (on_step) on_step(stage, r);
                                     },
                                 .at_end =
                                     [&](RankTraining& training) {
                                       if (hooks.at_end) hooks.at_end(stage, training);
                                       std::vector<float> weights = collect_weights(training);
                                       if (training.comm().rank() == 0)
                                         outcome.weights = std::move(weights);
                                     }});
  } catch (const OutOfMemory& e) {
    outcome.out_of_memory = report(e);
    outcome.weights.clear();
    return outcome;
  }
  if (result.ranks.empty())
    return outcome;  // rank 0 is in another process, and has all that follows
  outcome.steps = result.steps;
  outcome.weights_hash = weights_hash(outcome.weights);
  std::vector<double> seconds;
  const StepCount steps = count(result.steps);
  for (const StepRecord& r : result.steps) seconds.push_back(r.seconds);
  outcome.seconds_per_step = median(seconds);
  const Prediction formula = predict(prediction_input(spec, stage));
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const RankReport& measured = result.ranks[size_t(rank)];
    const RankReport dry = dry_run(spec, rank);
    std::ranges::copy(memory_rows(rank, measured, formula, dry),
                      std::back_inserter(outcome.memory));
    outcome.peak_total.push_back(measured.rest.peak_total());
    outcome.predicted_peak_total.push_back(dry.rest.peak_total());
    outcome.init_peak_total.push_back(measured.init_peak_total);
    outcome.peak_host.push_back(measured.host.peak_total());
    outcome.predicted_peak_host.push_back(dry.host.peak_total());
    const auto rows = traffic_rows(stage, spec.ranks, measured.log, formula.traffic, steps);
    outcome.traffic_equal_on_all_ranks =
        outcome.traffic_equal_on_all_ranks && std::ranges::all_of(rows, &TrafficRow::exact);
    if (rank == 0) outcome.traffic = rows;
    outcome.waiting.push_back(double(measured.log.total_time().waited) * 1e-9 /
                              double(std::max<int64_t>(1, steps.steps)));
  }
  per_step(stage, outcome.traffic, steps);
  return outcome;
}

}  // namespace

int64_t StepCount::with(StageKind stage, Purpose purpose) const {
  if (purpose == Purpose::check) return nonfinite;
  const bool after_update = purpose == Purpose::parameter && stage != StageKind::zero3;
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

bool StageOutcome::predictions_exact() const {
  return std::ranges::all_of(memory, &MemoryRow::exact) && peak_total == predicted_peak_total &&
         peak_host == predicted_peak_host && traffic_equal_on_all_ranks;
}

bool Comparison::any_fits() const {
  return std::ranges::any_of(stages,
                             [](const StageOutcome& s) { return s.listed && !s.out_of_memory; });
}

bool Comparison::ok() const {
  for (const StageOutcome& s : stages)
    if (!s.out_of_memory && ((bits_promised && !s.bitwise_equal) || !s.predictions_exact()))
      return false;
  return any_fits();
}

Comparison compare_stages(const TrainingSpec& spec, std::vector<StageKind> stages,
                          const OnStep& on_step, const StageHooks& hooks) {
  const int64_t A = spec.config.accumulation;
  Comparison comparison{
      .stages = {}, .parameters = spec.model.parameters(), .bits_promised = spec.ordered()};
  for (const StageKind stage : to_run(stages, A)) {
    comparison.stages.push_back(run_stage(with_stage(spec, stage), stage, on_step, hooks));
    comparison.stages.back().listed = std::ranges::find(stages, stage) != stages.end();
  }
  const StageOutcome& ddp = comparison.stages.front();
  for (StageOutcome& s : comparison.stages) {
    if (s.out_of_memory) continue;
    const auto reference = std::ranges::find_if(comparison.stages, [&](const StageOutcome& other) {
      return !other.out_of_memory && promise_the_same(s.stage, other.stage, A);
    });  // at the latest this is s itself
    s.promised_equal_to = reference->stage;
    s.bitwise_equal = same_bits(s, *reference);
    s.bitwise_equal_to_ddp = !ddp.out_of_memory && same_bits(s, ddp);
    s.max_abs_difference_to_ddp =
        ddp.out_of_memory ? std::nan("") : largest_difference(s.weights, ddp.weights);
  }
  return comparison;
}

StagePlan plan_stage(const TrainingSpec& spec, StageKind stage, int rank) {
  StagePlan plan{.stage = stage};
  const TrainingSpec staged = with_stage(spec, stage);
  const Prediction formula = predict(prediction_input(staged, stage));
  TrainingSpec unlimited = staged;
  unlimited.device_memory = unlimited.host_memory = 0;
  const RankReport dry = dry_run(unlimited, rank);
  plan.memory = memory_rows(rank, dry, formula, dry);
  plan.traffic = traffic_rows(stage, spec.ranks, {}, formula.traffic, {.steps = 1});
  plan.peak_total = dry.rest.peak_total();
  plan.peak_host = dry.host.peak_total();
  plan.init_peak_total = dry.init_peak_total;
  if (staged.device_memory > 0 || staged.host_memory > 0) {
    try {
      dry_run(staged, rank);
    } catch (const OutOfMemory& e) {
      plan.out_of_memory = report(e);
    }
  }
  return plan;
}

}  // namespace zl
