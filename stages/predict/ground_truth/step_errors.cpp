#include <algorithm>
#include <cmath>
#include <map>

#include "stages/predict/clock/clock_plan.h"
#include "stages/predict/clock/spec_sheet.h"
#include "stages/predict/ground_truth/clock_errors.h"

namespace zl {
namespace {

// Its kernels take `factor` times as long.
Machine slowed(Machine m, double factor) {
  m.rank.f32_flops /= factor;
  m.rank.half_flops /= factor;
  m.rank.memory_bandwidth /= factor;
  return m;
}

// The machine without what is measured on its kind of GPU.
Machine from_spec_sheet(Machine m) {
  const Machine a100 = find_machine("a100-80gb"), h100 = find_machine("h100-sxm");
  const bool is_a100 = m.rank.half_flops == a100.rank.half_flops;
  m.rank = with_shares_of(m.rank, is_a100 ? h100.rank : a100.rank);
  m.collectives.clear();
  return m;
}

Machine shipped(const PublishedStep& step) { return with(find_machine(step.machine), step.change); }

// The factor on kernels by which the step takes as long as published. The time grows with it.
double calibration(const PublishedStep& step, const Machine& machine) {
  double factor = 1;
  for (int i = 0; i < 6; ++i) {
    const double ratio = step.seconds / predicted_seconds(step, slowed(machine, factor));
    factor *= ratio;
    if (std::abs(ratio - 1) < 1e-3) break;
  }
  return factor;
}

// llm-foundry's optimizer, Composer's DecoupledAdamW, is eight operations of PyTorch, each of which
// reads and writes fp32 tensors: mul_ and add_ of exp_avg 2 + 3, mul_ and addcmul_ of exp_avg_sq
// 2 + 3, sqrt, division and add_ of the denominator 2 + 2 + 2, addcdiv_ 4. Our one kernel moves 28
// bytes of a parameter. So many times its time is added.
constexpr double kUnfused = 20 * 4 / 28.0 - 1;

bool same_set(const PublishedStep& a, const PublishedStep& b) {
  return a.program == b.program && a.machine == b.machine;
}

size_t row_that_calibrates(const std::vector<StepPrediction>& set) {
  const auto kind = [](const StepPrediction& p) {
    return std::pair(p.step->shape.block_size, p.step->stage);
  };
  std::map<std::pair<int64_t, StageKind>, int> rows;
  for (const StepPrediction& p : set) ++rows[kind(p)];
  const auto usual = std::ranges::max_element(rows, {}, [](const auto& r) { return r.second; });
  const auto rank = [&](const StepPrediction& p) {
    return std::pair(p.step->ranks, kind(p) != usual->first);
  };
  return size_t(std::ranges::min_element(set, {}, rank) - set.begin());
}

void calibrate(std::vector<StepPrediction>& set) {
  const size_t row = row_that_calibrates(set);
  set[row].calibrates = true;
  const PublishedStep& first = *set[row].step;
  const double factor = calibration(first, from_spec_sheet(shipped(first)));
  for (StepPrediction& p : set)
    p.calibrated = predicted_seconds(*p.step, slowed(from_spec_sheet(shipped(*p.step)), factor));
}

}  // namespace

GptTrainingSpec training_spec(const PublishedStep& step, bool recompute, const Machine& machine) {
  GptConfig shape = step.shape;
  if (step.llama) {
    const double block = 12.0 * double(shape.width) * double(shape.width);
    const double blocks = double(step.parameters) - 2.0 * double(shape.vocab * shape.width);
    shape.layers = std::max<int64_t>(1, std::llround(blocks / block));
  }
  GptTrainingSpec spec = gpt_spec(shape, 0, recompute ? Recompute::full : Recompute::none);
  spec.ranks = step.ranks;
  spec.micro_batch = step.micro_batch;
  spec.device = DeviceKind::cuda;
  spec.engine.stage = step.stage;
  spec.engine.accumulation = step.accumulation;
  spec.engine.precision = Dtype::bf16;
  if (step.stage == StageKind("hsdp")) spec.engine.ranks_per_node = machine.ranks_per_node;
  set_overlap(spec.engine, true);
  return spec;
}

double predicted_seconds(const PublishedStep& step, const Machine& machine) {
  double seconds = 0;
  const int sharing = step.update_ranks;
  for (const bool recompute : {false, true}) {
    const double share = recompute ? step.recomputed : 1 - step.recomputed;
    if (share <= 0) continue;
    const GptTrainingSpec spec = training_spec(step, recompute, machine);
    const StepTime time = clock_step(spec, machine);
    seconds += share * time.times.seconds;
    if (step.program == "llm-foundry") seconds += share * time.kernels.at("adamw") * kUnfused;
    // InternEvo waits for all updated parameters before the next step (overlap_sync_param=False).
    if (step.program == "InternEvo" && step.stage == StageKind::zero1)
      seconds += share * time.calls.at("all_gather");
    if (sharing == 1) continue;
    seconds -= share * time.kernels.at("adamw") * (1 - 1.0 / sharing);
    seconds += share * collective_seconds(machine, Collective::all_gather, 2 * step.parameters,
                                          places_of(machine, sharing));
  }
  return seconds;
}

std::vector<StepPrediction> predict_steps(const std::vector<PublishedStep>& steps,
                                          const std::function<void()>& before_each) {
  std::vector<StepPrediction> all;
  for (size_t begin = 0; begin < steps.size();) {
    std::vector<StepPrediction> set;
    for (; begin < steps.size() && (set.empty() || same_set(*set[0].step, steps[begin])); ++begin) {
      if (before_each) before_each();
      const PublishedStep& step = steps[begin];
      const Machine machine = shipped(step);
      set.push_back({.step = &step,
                     .spec_sheet = predicted_seconds(step, from_spec_sheet(machine)),
                     .shipped = predicted_seconds(step, machine),
                     .fitted = step.program == "llm-foundry" && step.ranks <= 16});
    }
    calibrate(set);
    all.insert(all.end(), set.begin(), set.end());
  }
  return all;
}

std::vector<SetErrors> set_errors(const std::vector<StepPrediction>& predictions) {
  std::vector<SetErrors> sets;
  for (const StepPrediction& p : predictions) {
    const PublishedStep& step = *p.step;
    if (sets.empty() || sets.back().program != step.program || sets.back().machine != step.machine)
      sets.push_back({.program = step.program, .machine = step.machine, .unlike = step.unlike});
    SetErrors& set = sets.back();
    set.spec_sheet.add(p.spec_sheet, step.seconds);
    (p.fitted ? set.fitted : set.held_out).add(p.shipped, step.seconds);
    if (p.calibrates) set.calibrated_on = &step;
    if (!p.calibrates) set.calibrated.add(p.calibrated, step.seconds);
  }
  return sets;
}

SetErrors total(const std::vector<SetErrors>& sets) {
  SetErrors all;
  for (const SetErrors& set : sets) {
    if (!set.unlike.empty()) continue;
    all.spec_sheet.add(set.spec_sheet);
    all.fitted.add(set.fitted);
    all.held_out.add(set.held_out);
    all.calibrated.add(set.calibrated);
  }
  return all;
}

StepOrder step_order(const std::vector<StepPrediction>& predictions) {
  StepOrder order;
  for (size_t i = 0; i < predictions.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const PublishedStep &a = *predictions[i].step, &b = *predictions[j].step;
      const bool alike = a.program == b.program && a.model == b.model && a.variant == b.variant &&
                         a.shape == b.shape && a.recomputed == b.recomputed &&
                         a.micro_batch == b.micro_batch && a.accumulation == b.accumulation;
      const bool stage = a.stage != b.stage, machine = a.machine != b.machine,
                 ranks = a.ranks != b.ranks;
      const double ratio = a.seconds / b.seconds;
      if (!alike || stage + machine + ranks != 1 ||
          std::abs(std::log(ratio)) < std::log(1 + kNoise))
        continue;
      OrderErrors& errors = stage ? order.stages : machine ? order.machines : order.ranks;
      ++errors.pairs;
      errors.right += (predictions[i].shipped > predictions[j].shipped) == (ratio > 1);
    }
  return order;
}

}  // namespace zl
