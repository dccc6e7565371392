// The planner is the program itself: what a dry run counts is what a real step takes, to the byte.
// On random configurations: tests/random.
#include "stages/predict/dry_run.h"

#include <catch2/catch_test_macros.hpp>

#include "stages/train/comparison.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("a dry run of another micro-batch is not taken for this one", "[stages]") {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  const int64_t peak = dry_run(spec, 0).rest.peak_total();
  spec.micro_batch += 1;
  CHECK(dry_run(spec, 0).rest.peak_total() > peak);
}

TEST_CASE("with several micro-batches compare asks of each stage what is promised, no more",
          "[stages]") {
  GptTrainingSpec spec =
      gpt_spec({.layers = 1, .heads = 1, .width = 8, .block_size = 8, .vocab = 256});
  spec.steps = 4;
  spec.engine.accumulation = 3;
  spec.ranks = 3;
  const Windows windows = text_in_windows(8);
  spec.data = &windows;
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  CHECK(comparison.ok());
  CHECK(comparison.stages[2].promised_equal_to == StageKind::zero2);
  CHECK(comparison.stages[3].promised_equal_to == StageKind::zero2);
  CHECK(comparison.stages[3].bitwise_equal);
  CHECK_FALSE(comparison.stages[3].bitwise_equal_to_ddp);
  CHECK(comparison.stages[3].max_abs_difference_to_ddp > 0);
  Comparison broken = comparison;
  broken.stages[1].memory[0].predicted_peak += 1;
  CHECK_FALSE(broken.ok());
  broken = comparison;
  broken.stages[1].bitwise_equal = false;
  CHECK_FALSE(broken.ok());
}

TEST_CASE("a stage that ran only to be compared with does not make the listed ones fit",
          "[stages]") {
  GptTrainingSpec spec =
      gpt_spec({.layers = 4, .heads = 1, .width = 32, .block_size = 8, .vocab = 256});
  spec.steps = 1;
  const Windows windows = text_in_windows(8);
  spec.data = &windows;
  // Alone, stage 3 needs more than ddp: it gathers a copy of what it keeps.
  spec.device_memory = plan_stage(spec, StageKind::zero3, 0).peak_total - 1;
  const Comparison comparison = compare_stages(spec, {StageKind::zero3});
  REQUIRE(comparison.stages.size() == 2);
  CHECK_FALSE(comparison.stages[0].out_of_memory.has_value());
  CHECK(comparison.stages[1].out_of_memory.has_value());
  CHECK_FALSE(comparison.any_fits());
  CHECK_FALSE(comparison.ok());
  CHECK(compare_stages(spec, {StageKind::ddp, StageKind::zero3}).ok());
}

TEST_CASE("equality is never claimed without a stage to compare with", "[stages]") {
  const Windows windows = text_in_windows(8);
  GptTrainingSpec spec =
      gpt_spec({.layers = 4, .heads = 2, .width = 32, .block_size = 8, .vocab = 256});
  spec.steps = 2;
  spec.micro_batch = 1;
  spec.ranks = 4;
  spec.data = &windows;
  spec.engine.accumulation = 2;
  const Comparison brought =
      compare_stages(spec, {StageKind::zero3});  // zero3 promises zero2's bits here
  REQUIRE(brought.stages.size() == 3);
  CHECK(brought.stages[1].stage == StageKind::zero2);
  CHECK_FALSE(brought.stages[1].listed);
  CHECK(brought.stages[2].promised_equal_to == StageKind::zero2);
  CHECK(brought.stages[2].bitwise_equal);
  spec.engine.accumulation = 1;
  spec.device_memory = plan_stage(spec, StageKind::zero2, 0).peak_total;  // neither ddp nor zero1
  const Comparison small = compare_stages(spec, {kStages, kStages + 4});
  REQUIRE(small.stages[1].out_of_memory.has_value());
  CHECK(small.stages[3].promised_equal_to == StageKind::zero2);
  CHECK(small.stages[3].bitwise_equal);
  CHECK(small.ok());
}
