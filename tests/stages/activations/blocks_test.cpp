// The inputs of a GPT's blocks: the closed formulas on real runs, and several blocks per
// checkpoint.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "stages/train/comparison.h"
#include "tests/pairwise.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

struct Seen {
  Bits bits;
  TrainingResult result;
};

Seen train(GptTrainingSpec spec) {
  const Windows text = text_in_windows(spec.window);
  spec.data = &text;
  Seen seen;
  seen.bits = train_bits(spec, {}, &seen.result);
  return seen;
}

GptTrainingSpec odd_blocks(Recompute recompute, int64_t checkpoints) {
  const GptConfig model{.layers = 5, .heads = 3, .width = 15, .block_size = 7, .vocab = 131};
  GptTrainingSpec spec = gpt_spec(model, 0, recompute, checkpoints);
  spec.micro_batch = 2;
  spec.steps = 2;
  spec.ranks = 2;
  spec.poison = true;
  spec.engine.accumulation = 2;
  spec.engine.gradient_clipping = 0.5;
  return spec;
}

// Memory, traffic and moves of every rank are as `plan` and `compare` predict them.
bool as_predicted(GptTrainingSpec spec) {
  const Windows text = text_in_windows(spec.window);
  spec.data = &text;
  return compare_stages(spec, {spec.engine.stage}).stages.back().predictions_exact();
}

}  // namespace

TEST_CASE("blocks that are computed again together have the same bits, and predicted bytes",
          "[stages]") {
  SettingsRow pick = any_pair({4, 3, 2, 2});
  const auto stage = pick.next_stage();
  const int64_t checkpoints = pick.next({1, 2, 5});
  const bool on_host = pick.next({false, true}), overlap = pick.next({false, true});
  const Dtype type = on_host ? Dtype::bf16 : Dtype::f32;
  CAPTURE(name(stage), name(type), checkpoints, overlap);
  GptTrainingSpec all = odd_blocks(Recompute::none, 0),
                  spec = odd_blocks(Recompute::full, checkpoints);
  for (GptTrainingSpec* s : {&all, &spec}) {
    s->engine.stage = stage;
    s->engine.precision = type;
    if (overlap)
      s->engine.overlap = {
          .overlap_comm = true, .prefetch_bucket_size = 4000, .max_reuse_distance = 9000};
  }
  spec.engine.cpu_checkpointing = on_host;
  const Seen kept = train(all), again = train(spec);
  CHECK(again.bits == kept.bits);
  CHECK(as_predicted(spec));
  if (on_host)
    CHECK(again.result.ranks[0].host.peak(MemoryUse::activation) ==  // 2 x 7 x 15 elements each
          checkpoints * 210 * size_of(type));
  all.engine.seed += 1;
  CHECK_FALSE(train(all).bits == kept.bits);
}

TEST_CASE("there are no more checkpoints than blocks", "[stages]") {
  const GptConfig model{.layers = 3, .heads = 1, .width = 4, .block_size = 4, .vocab = 5};
  CHECK_NOTHROW(Gpt(model, Recompute::full, 3));
  CHECK_THROWS_WITH(Gpt(model, Recompute::full, 4),
                    Catch::Matchers::ContainsSubstring(
                        "number_checkpoints is 4, but a model of 3 blocks has at most 3"));
}
