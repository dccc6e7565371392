#include "stages/train/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "stages/predict/dry_run.h"
#include "stages/variants/groups.h"

namespace zl {
namespace {

// From totals of a run to numbers of one step; exact() compares totals before this.
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

using OnStep = std::function<void(StageKind, const StepRecord&)>;

// The stages of one comparison, run one after another.
class Runs {
 public:
  Runs(const TrainingSpec& spec, const std::vector<StageKind>& stages, const OnStep& on_step,
       const StageHooks& hooks)
      : spec_(spec), on_step_(on_step), hooks_(hooks), of_ddp_(size_t(spec.ranks)) {
    any_bounded_ = std::ranges::any_of(stages, [this](StageKind stage) { return bounded(stage); });
  }

  StageOutcome run(StageKind stage) {
    StageOutcome outcome{.stage = stage};
    const TrainingSpec spec = with_stage(spec_, stage);
    try {
      if (bounded(stage) && stage != StageKind::ddp && ddp_ran_ && magnitudes_.empty())
        magnitudes_ = gradient_magnitudes(spec_);
      const TrainingResult result = run_training(spec, callbacks(outcome));
      ddp_ran_ = ddp_ran_ || stage == StageKind::ddp;
      if (!result.ranks.empty()) measure(spec, result, outcome);  // else rank 0's process has it
    } catch (const OutOfMemory& e) {
      outcome.out_of_memory = out_of_memory_report(e);
      outcome.weights.clear();
    }
    return outcome;
  }

 private:
  // Whether the first step's gradient may differ from ddp's, within a bound.
  bool bounded(StageKind stage) const {
    if (!spec_.ordered() || stage == StageKind("zero3_qwz")) return false;
    if (stage == StageKind::ddp && any_bounded_) return true;
    return orders_differ(spec_) || !promises_bits(stage);
  }

  TrainingCallbacks callbacks(StageOutcome& outcome) {
    const StageKind stage = outcome.stage;
    auto gradient = std::make_shared<ShardsOfRanks>(size_t(spec_.ranks));  // of the first step
    return {.at_start =
                [this, stage](Trainer& trainer) {
                  if (hooks_.at_start) hooks_.at_start(stage, trainer);
                },
            .after_backward =
                [this, stage, gradient](Trainer& trainer) {
                  if (bounded(stage) && trainer.steps() == 1 &&
                      trainer.engine().is_gradient_accumulation_boundary())
                    (*gradient)[size_t(trainer.comm().rank())] = gradient_shards(trainer);
                },
            .after_step =
                [this, stage](Trainer& trainer) {
                  if (hooks_.after_step) hooks_.after_step(stage, trainer);
                },
            .on_step =
                [this, stage](const StepRecord& record) {
                  if (on_step_) on_step_(stage, record);
                },
            .at_end =
                [this, stage, gradient, &outcome](Trainer& trainer) {
                  if (hooks_.at_end) hooks_.at_end(stage, trainer);
                  std::vector<float> weights = collect_weights(trainer);
                  const bool first = trainer.comm().rank() == 0;
                  if (first) outcome.weights = std::move(weights);
                  if (stage == StageKind("zero3_qwz")) {
                    const double part = weights_part_of_bound(trainer);
                    if (first) outcome.weights_part_of_bound = part;
                  }
                  if (!bounded(stage)) return;
                  const auto deviation = judge(trainer, (*gradient)[size_t(trainer.comm().rank())]);
                  if (first) outcome.gradient_deviation = deviation;
                }};
  }

  // Keeps ddp's gradient and compares the others with it. Empty: ddp did not fit.
  std::optional<GradientDeviation> judge(Trainer& trainer, std::vector<float>& gradient) {
    std::vector<float>& of_ddp = of_ddp_[size_t(trainer.comm().rank())];
    if (trainer.spec().engine.stage == StageKind::ddp) of_ddp = std::move(gradient);
    if (trainer.spec().engine.stage == StageKind::ddp || of_ddp.empty()) return std::nullopt;
    return largest_deviation(trainer, gradient, of_ddp, magnitudes_[size_t(trainer.comm().rank())]);
  }

  void measure(const TrainingSpec& spec, const TrainingResult& result, StageOutcome& outcome);

  const TrainingSpec& spec_;
  const OnStep& on_step_;
  const StageHooks& hooks_;
  ShardsOfRanks of_ddp_;
  const bool formulas_apply_ = formulas_apply(spec_);
  std::vector<GradientMagnitudes> magnitudes_;  // made when ddp has run, before the stage after it
  bool ddp_ran_ = false, any_bounded_ = false;
};

void Runs::measure(const TrainingSpec& spec, const TrainingResult& result, StageOutcome& outcome) {
  outcome.steps = result.steps;
  outcome.weights_hash = weights_hash(outcome.weights);
  std::vector<double> seconds;
  for (const StepRecord& r : result.steps) seconds.push_back(r.seconds);
  outcome.seconds_per_step = median(seconds);
  const StepCount steps = count(result.steps);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const RankReport& measured = result.ranks[size_t(rank)];
    const RankReport dry = dry_run(spec, rank);
    const Prediction prediction = predict(spec, dry, formulas_apply_);
    std::ranges::copy(memory_rows(rank, measured, prediction, dry),
                      std::back_inserter(outcome.memory));
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
    const TimeSpent time = measured.log.total_time();
    const auto per_step = [&](int64_t nanoseconds) {
      return double(nanoseconds) * 1e-9 / double(std::max<int64_t>(1, steps.steps));
    };
    outcome.waiting.push_back(per_step(time.waited));
    outcome.communicating.push_back(per_step(time.nanoseconds));
    outcome.hidden.push_back(per_step(time.hidden()));
    outcome.exposed.push_back(per_step(time.exposed));
  }
  per_step(spec.engine.stage, outcome.traffic, steps);
}

int64_t parameter_count(const TrainingSpec& spec) {
  int64_t n = 0;
  const auto model = spec.new_model();
  for (const Unit& u : model->units()) n += u.numel();
  return n;
}

bool has_wrong_values(const StageOutcome& s) {
  return !s.out_of_memory && (!s.bitwise_equal || !s.gradient_within_bound());
}

// Every stage is judged by itself: the wrong one may be ddp, which the others are compared with.
void diagnose(const TrainingSpec& spec, Comparison& comparison) {
  if (!comparison.bits_promised || std::ranges::none_of(comparison.stages, has_wrong_values))
    return;
  for (StageOutcome& s : comparison.stages)
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
                          const OnStep& on_step, const StageHooks& hooks) {
  Comparison comparison{
      .stages = {}, .parameters = parameter_count(spec), .bits_promised = spec.ordered()};
  const std::vector<StageKind> all = to_run(stages, spec);
  Runs runs(spec, all, on_step, hooks);
  for (const StageKind stage : all) {
    comparison.stages.push_back(runs.run(stage));
    comparison.stages.back().listed = std::ranges::find(stages, stage) != stages.end();
  }
  const StageOutcome& ddp = comparison.stages.front();
  for (StageOutcome& s : comparison.stages) {
    if (s.out_of_memory) continue;
    const auto reference = std::ranges::find_if(comparison.stages, [&](const StageOutcome& other) {
      return !other.out_of_memory && promise_the_same(s.stage, other.stage, spec);
    });  // at the latest this is s itself
    s.promised_equal_to = reference->stage;
    s.bitwise_equal = same_bits(s, *reference);
    s.bitwise_equal_to_ddp = !ddp.out_of_memory && same_bits(s, ddp);
    s.max_abs_difference_to_ddp =
        ddp.out_of_memory ? std::nan("") : largest_difference(s.weights, ddp.weights);
  }
  diagnose(spec, comparison);
  return comparison;
}

}  // namespace zl
