// The planner is the program itself: what a dry run counts is what a real step takes, to the byte.
#include "stages/predict/dry_run.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "stages/train/comparison.h"
#include "tensor/random.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Draw {
  PhiloxStream random{20260, 5};
  uint64_t index = 0;
  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(random.uniform(index++) * double(high - low + 1));
  }
};

GptTrainingSpec random_spec(Draw& draw) {
  const int64_t heads = draw.between(1, 3);
  const GptConfig model{.layers = draw.between(1, 3),
                        .heads = heads,
                        .width = heads * draw.between(1, 9),
                        .block_size = draw.between(2, 17),
                        .vocab = 256};
  const int64_t window = draw.between(1, model.block_size);
  GptTrainingSpec spec = gpt_spec(model, window, Recompute(draw.between(0, 2)));
  spec.micro_batch = draw.between(1, 3);
  spec.engine.accumulation = draw.between(1, 3);
  spec.steps = draw.between(1, 3);
  spec.engine.optimizer.separate_master = draw.between(0, 1) == 1;
  const int64_t buckets[] = {1, 100, 5000, 1'000'000'000};
  spec.engine.reduce_bucket_size = buckets[draw.between(0, 3)];
  spec.engine.allgather_bucket_size = buckets[draw.between(0, 3)];
  spec.engine.stage = kStages[draw.between(0, 3)];
  spec.ranks = int(draw.between(1, 4));
  spec.poison = true;
  return spec;
}

// Blocks of 2 heads on 4 ranks with one row each, for two steps.
GptTrainingSpec four_blocks(const Windows& windows) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 4, .heads = 2, .width = 32, .block_size = 8, .vocab = 256});
  spec.steps = 2;
  spec.micro_batch = 1;
  spec.ranks = 4;
  spec.data = &windows;
  return spec;
}

}  // namespace

TEST_CASE("a dry run counts what a real run takes, on 50 random configurations", "[stages]") {
  Draw draw;
  for (int i = 0; i < 50; ++i) {
    GptTrainingSpec spec = random_spec(draw);
    const Windows windows = text_in_windows(spec.window);
    spec.data = &windows;
    const TrainingResult real = run_training(spec);
    for (int rank = 0; rank < spec.ranks; ++rank) {
      CAPTURE(i, rank, spec.ranks, name(spec.engine.stage), name(spec.recompute),
              spec.engine.accumulation);
      const MemoryLedger& measured = real.ranks[size_t(rank)].rest;
      const RankReport dry = dry_run(spec, rank);
      for (int u = 0; u < kMemoryUses; ++u) {
        CAPTURE(name(MemoryUse(u)));
        CHECK(measured.live(MemoryUse(u)) == dry.rest.live(MemoryUse(u)));
        CHECK(measured.peak(MemoryUse(u)) == dry.rest.peak(MemoryUse(u)));
      }
      CHECK(measured.peak_total() == dry.rest.peak_total());
      CHECK(real.ranks[size_t(rank)].init_peak_total == dry.init_peak_total);
    }
  }
}

TEST_CASE("a dry run of another micro-batch is not taken for this one", "[stages]") {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  const int64_t peak = dry_run(spec, 0).rest.peak_total();
  spec.micro_batch += 1;
  CHECK(dry_run(spec, 0).rest.peak_total() > peak);
}

TEST_CASE("compare finds every stage equal and every prediction exact, and its JSON facts agree",
          "[stages]") {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.steps = 3;
  spec.ranks = 3;
  const Windows windows = text_in_windows(9);
  spec.data = &windows;
  const Comparison comparison = compare_stages(spec, {StageKind::zero3, StageKind::zero1});
  REQUIRE(comparison.stages.size() == 3);
  CHECK(comparison.stages[0].stage == StageKind::ddp);  // first, though not listed
  CHECK(comparison.ok());
  for (const StageOutcome& s : comparison.stages) {
    CHECK(s.bitwise_equal_to_ddp);
    CHECK(s.weights_hash == comparison.stages[0].weights_hash);
    CHECK(int64_t(s.weights.size()) == spec.model.parameters());
  }
  Comparison broken = comparison;
  broken.stages[1].memory[0].predicted_peak += 1;
  CHECK_FALSE(broken.ok());
  broken = comparison;
  broken.stages[1].bitwise_equal = false;
  CHECK_FALSE(broken.ok());
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
}

TEST_CASE("stages that do not fit the device are reported, and the others still compared",
          "[stages]") {
  const Windows windows = text_in_windows(8);
  GptTrainingSpec spec = four_blocks(windows);
  spec.device_memory = plan_stage(spec, StageKind::zero3, 0).peak_total;
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  CHECK(comparison.stages[0].out_of_memory.has_value());
  CHECK_FALSE(comparison.stages[3].out_of_memory.has_value());
  CHECK(comparison.ok());
  spec.device_memory = 1000;
  const Comparison none = compare_stages(spec, {StageKind::ddp, StageKind::zero3});
  CHECK_FALSE(none.any_fits());
  CHECK_FALSE(none.ok());
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
  GptTrainingSpec spec = four_blocks(windows);
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
