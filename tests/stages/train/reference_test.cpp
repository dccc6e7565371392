// Every promise holds on the kernels of tensor/reference, as use_reference() and --device reference
// choose them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "nn/data/corpus.h"
#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

GptTrainingSpec on_reference(int ranks, int64_t steps = 2) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  static const Windows text(TokenData::of_text("corpus", std::string(default_corpus())), 9);
  spec.data = &text;
  spec.micro_batch = 2;
  spec.steps = steps;
  spec.ranks = ranks;
  spec.poison = true;
  use_reference(spec);
  return spec;
}

std::vector<double> losses_of(const TrainingSpec& spec) {
  std::vector<double> losses;
  for (const StepRecord& step : run_training(spec).steps) losses.push_back(step.loss);
  return losses;
}

}  // namespace

TEST_CASE("on the reference all stages have the same bits and the predicted bytes and traffic",
          "[stages]") {
  GptTrainingSpec spec = on_reference(3);
  spec.engine.precision = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  const bool overlaps = GENERATE(false, true);
  if (overlaps) spec.engine.overlap = {.overlap_comm = true, .prefetch_bucket_size = 5000};
  if (overlaps) spec.engine.offload_optimizer = OffloadDevice::cpu;
  CAPTURE(name(spec.engine.precision), overlaps);
  CHECK(compare_stages(spec, {kStages, kStages + 4}).ok());
  spec.reference = false;  // the twin: predicts the workspace of tensor/cpu
  CHECK_FALSE(compare_stages(spec, {StageKind::ddp}).ok());
}

TEST_CASE("20 steps on the reference have the CPU's losses to 1e-4", "[stages]") {
  TrainingSpec spec = on_reference(1, 20);
  const std::vector<double> reference = losses_of(spec);
  spec.backends = {};
  const std::vector<double> cpu = losses_of(spec);
  spec.engine.optimizer.lr *= 1.1;  // the twin: another training
  const std::vector<double> other = losses_of(spec);
  const auto within = [&](const std::vector<double>& losses) {
    bool all = losses.size() == 20;
    for (size_t i = 0; i < 20; ++i) all = all && std::abs(losses[i] - cpu[i]) <= 1e-4 * cpu[i];
    return all;
  };
  CHECK(within(reference));
  CHECK(reference != cpu);  // other kernels computed
  CHECK_FALSE(within(other));
}

TEST_CASE("reproducible sums on the reference do not depend on the number of ranks", "[stages]") {
  const bool reproducible = GENERATE(true, false);
  const auto losses = [&](StageKind stage, int ranks) {
    TrainingSpec spec = on_reference(ranks, 3);
    spec.engine.stage = stage;
    spec.engine.accumulation = 6 / ranks;
    spec.engine.reproducible = reproducible;
    return losses_of(spec);
  };
  const std::vector<double> one = losses(StageKind::ddp, 1);
  bool same = true;
  for (const StageKind stage : kStages)
    for (const int ranks : {2, 3, 6}) same = same && losses(stage, ranks) == one;
  CHECK(same == reproducible);
}
