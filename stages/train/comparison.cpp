#include "stages/train/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "stages/predict/dry_run.h"

namespace zl {
namespace {

bool same_bits(const StageOutcome& a, const StageOutcome& b) {
  const auto same = [](const auto& x, const auto& y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  return std::ranges::equal(a.weights, b.weights, same) &&
         std::ranges::equal(a.steps, b.steps, [&](const StepRecord& x, const StepRecord& y) {
           return same(x.loss, y.loss) && same(x.grad_norm, y.grad_norm);
         });
}

// NaN if one of the differences is.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  const auto larger = [](double x, double y) { return y > x || std::isnan(y) ? y : x; };
  const auto difference = [](double x, double y) { return std::abs(x - y); };
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, larger, difference);
}

double median_seconds(const std::vector<StepRecord>& steps) {
  std::vector<double> seconds;
  for (const StepRecord& step : steps) seconds.push_back(step.seconds);
  std::ranges::sort(seconds);
  const size_t n = seconds.size();
  return n == 0 ? 0 : (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
}

// Whether zero2 and zero3 may differ from ddp and zero1 by rounding: they add ranks before
// micro-batches.
bool orders_differ(const TrainingSpec& spec) {
  return spec.engine.accumulation > 1 && !spec.engine.reproducible;
}

bool promises_bits(StageKind stage) { return bits_of(stage) == VariantBits::equal; }

bool promise_the_same(StageKind a, StageKind b, const TrainingSpec& spec) {
  if (!promises_bits(a) || !promises_bits(b)) return a == b;
  return !orders_differ(spec) || shards_gradient(a) == shards_gradient(b);
}

// The listed stages and their references, in stage order.
std::vector<StageKind> to_run(std::vector<StageKind> stages, const TrainingSpec& spec) {
  const auto sharded = std::ranges::count_if(
      stages, [](StageKind stage) { return shards_gradient(stage) && promises_bits(stage); });
  if (orders_differ(spec) && sharded > 0) {
    if (sharded == std::ranges::count(stages, StageKind::zero2)) stages.push_back(StageKind::zero3);
    stages.push_back(StageKind::zero2);
  }
  stages.push_back(StageKind::ddp);
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

// Whether the first step's gradient may differ from ddp's, within a bound.
bool is_bounded(StageKind stage, const TrainingSpec& spec) {
  return spec.ordered() && stage != StageKind("zero3_qwz") &&
         (orders_differ(spec) || !promises_bits(stage));
}

void measure(const TrainingSpec& spec, const TrainingResult& result, bool by_formulas,
             StageOutcome& outcome) {
  outcome.steps = result.steps;
  outcome.weights_hash = weights_hash(outcome.weights);
  outcome.seconds_per_step = median_seconds(result.steps);
  const StepCount steps = count(result.steps);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const RankReport& measured = result.ranks[size_t(rank)];
    const RankReport dry = dry_run(spec, rank);
    const Prediction prediction = predict(spec, dry, by_formulas);
    std::ranges::copy(memory_rows(rank, measured, prediction), std::back_inserter(outcome.memory));
    outcome.peak_total.push_back(measured.rest.peak_total());
    outcome.predicted_peak_total.push_back(dry.rest.peak_total());
    outcome.init_peak_total.push_back(measured.init_peak_total);
    outcome.peak_host.push_back(measured.host.peak_total());
    outcome.predicted_peak_host.push_back(dry.host.peak_total());
    const auto rows = traffic_rows(spec.engine.stage, measured.log, prediction, steps);
    outcome.traffic_equal_on_all_ranks =
        outcome.traffic_equal_on_all_ranks && std::ranges::all_of(rows, &TrafficRow::exact);
    if (rank == 0) outcome.traffic = rows;
    std::ranges::copy(move_rows(rank, measured.moves, prediction, steps),
                      std::back_inserter(outcome.moves));
    outcome.communication.push_back(measured.log.total_time());
  }
  // From totals of the run, which exact() compares, to numbers of one step.
  for (TrafficRow& r : outcome.traffic)
    for (int64_t* value : {&r.calls, &r.elements, &r.sent, &r.predicted_calls,
                           &r.predicted_elements, &r.predicted_sent})
      *value /= std::max<int64_t>(1, steps.with(spec.engine.stage, r.purpose));
}

// Runs one stage, and keeps the gradient of the first step where that is asked for. Only the
// process of rank 0 gets results.
StageOutcome run_stage(const TrainingSpec& spec, const FlatLayout& layout,
                       const TrainingCallbacks& callbacks, bool by_formulas, bool keep_gradient) {
  StageOutcome outcome{.stage = spec.engine.stage};
  TrainingCallbacks all = callbacks;
  all.after_backward = [&](Trainer& t) {
    if (callbacks.after_backward) callbacks.after_backward(t);
    if (!keep_gradient || t.steps() != 1 || !t.engine().is_gradient_accumulation_boundary()) return;
    const std::vector<FlatValues> shards = of_all_ranks(t.comm(), gradient_shards(t));
    if (t.comm().rank() == 0) outcome.gradient = layout.full(shards);
  };
  all.at_end = [&](Trainer& t) {
    if (callbacks.at_end) callbacks.at_end(t);
    std::vector<float> weights = collect_weights(t);
    const bool quantizes_weights = outcome.stage == StageKind("zero3_qwz");
    const double part = quantizes_weights ? weights_part_of_bound(t) : 0;
    if (t.comm().rank() != 0) return;
    outcome.weights = std::move(weights);
    if (quantizes_weights) outcome.weights_part_of_bound = part;
  };
  try {
    const TrainingResult result = run_training(spec, all);
    if (!result.ranks.empty()) measure(spec, result, by_formulas, outcome);
    return outcome;
  } catch (const OutOfMemory& e) {
    return {.stage = spec.engine.stage, .out_of_memory = e};
  }
}

void judge_gradients(const TrainingSpec& spec, const FlatLayout& layout,
                     std::vector<StageOutcome>& stages) {
  const FlatValues& of_ddp = stages.front().gradient;
  std::optional<GradientMagnitudes> magnitudes;
  for (StageOutcome& s : stages) {
    if (s.stage == StageKind::ddp || of_ddp.empty() || s.gradient.empty()) continue;
    if (!magnitudes) magnitudes = gradient_magnitudes(spec);
    s.gradient_deviation =
        largest_deviation(with_stage(spec, s.stage), layout, s.gradient, of_ddp, *magnitudes);
  }
}

void compare_bits(const TrainingSpec& spec, std::vector<StageOutcome>& stages) {
  const StageOutcome& ddp = stages.front();
  for (StageOutcome& s : stages) {
    if (s.out_of_memory) continue;
    const auto reference = std::ranges::find_if(stages, [&](const StageOutcome& other) {
      return !other.out_of_memory && promise_the_same(s.stage, other.stage, spec);
    });  // at the latest this is s itself
    s.promised_equal_to = reference->stage;
    s.bitwise_equal = same_bits(s, *reference);
    s.bitwise_equal_to_ddp = !ddp.out_of_memory && same_bits(s, ddp);
    s.max_abs_difference_to_ddp =
        ddp.out_of_memory ? std::nan("") : largest_difference(s.weights, ddp.weights);
  }
}

// Every stage is judged by itself: the wrong one may be ddp, which the others are compared with.
void diagnose(const TrainingSpec& spec, std::vector<StageOutcome>& stages) {
  const auto has_wrong_values = [](const StageOutcome& s) {
    return !s.out_of_memory && (!s.bitwise_equal || !s.gradient_within_bound());
  };
  if (!spec.ordered() || std::ranges::none_of(stages, has_wrong_values)) return;
  for (StageOutcome& s : stages)
    if (!s.out_of_memory && bits_of(s.stage) != VariantBits::lossy)
      s.diagnosis = diagnose_stage(with_stage(spec, s.stage));
}

}  // namespace

bool StageOutcome::gradient_within_bound() const {
  return (!gradient_deviation || gradient_deviation->part_of_bound <= 1) &&
         (!weights_part_of_bound || *weights_part_of_bound <= 1);
}

bool StageOutcome::predictions_exact() const {
  return std::ranges::all_of(memory, &MemoryRow::exact) && peak_total == predicted_peak_total &&
         peak_host == predicted_peak_host && traffic_equal_on_all_ranks &&
         std::ranges::all_of(moves, &MoveRow::exact);
}

int64_t StageOutcome::first_nonfinite() const {
  for (const StepRecord& r : steps)
    if (!std::isfinite(r.loss)) return r.step;
  const bool finite = std::ranges::all_of(weights, [](float w) { return std::isfinite(w); });
  return finite ? 0 : int64_t(steps.size()) + 1;
}

bool Comparison::any_fits() const {
  return std::ranges::any_of(stages,
                             [](const StageOutcome& s) { return s.listed && !s.out_of_memory; });
}

bool Comparison::ok() const {
  for (const StageOutcome& s : stages)
    if (!s.out_of_memory && ((bits_promised && !s.bitwise_equal) || !s.gradient_within_bound() ||
                             !s.predictions_exact() || s.first_nonfinite() > 0))
      return false;
  return any_fits();
}

Comparison compare_stages(const TrainingSpec& spec, std::vector<StageKind> stages,
                          const TrainingCallbacks& callbacks) {
  Comparison comparison{.stages = {}, .parameters = 0, .bits_promised = spec.ordered()};
  const auto model = spec.new_model();
  for (const Unit& u : model->units()) comparison.parameters += u.numel();
  const FlatLayout layout(model->units(), spec.ranks);
  const std::vector<StageKind> all = to_run(stages, spec);
  const bool any_bounded =
      std::ranges::any_of(all, [&](StageKind stage) { return is_bounded(stage, spec); });
  const bool by_formulas = formulas_apply(spec);
  for (const StageKind stage : all) {
    const bool keep_gradient = stage == StageKind::ddp ? any_bounded : is_bounded(stage, spec);
    comparison.stages.push_back(
        run_stage(with_stage(spec, stage), layout, callbacks, by_formulas, keep_gradient));
    comparison.stages.back().listed = std::ranges::count(stages, stage) > 0;
  }
  judge_gradients(spec, layout, comparison.stages);
  compare_bits(spec, comparison.stages);
  diagnose(spec, comparison.stages);
  for (StageOutcome& s : comparison.stages) s.gradient = FlatValues();  // frees it, unlike = {}
  return comparison;
}

}  // namespace zl
