// The loss of an evaluation does not depend on how its rows are divided into passes and over ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstdint>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

constexpr int64_t kWindow = 5;  // [n]

// 65 windows, of which the last 7 are held out. Their texts differ, and so do their losses.
const Windows& text() {
  static const Windows windows = [] {
    std::string text;
    for (int i = 0; i <= 65 * kWindow; ++i) text += char('a' + i * i % 23);
    return Windows(TokenData::of_text("text", text), kWindow, {.hold_out = true});
  }();
  return windows;
}

double loss_of_evaluation(StageKind stage, int ranks, int64_t rows) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 1, .heads = 3, .width = 15, .block_size = kWindow, .vocab = 131});
  spec.engine.stage = stage;
  spec.engine.optimizer = {.kind = OptimizerKind::sgd, .lr = 0};  // the weights stay as they are
  spec.ranks = ranks;
  spec.micro_batch = rows;
  spec.steps = 1;
  spec.eval_every = 1;
  spec.data = &text();
  spec.rank_options.timeout = std::chrono::seconds(20);
  return run_training(spec).steps[0].eval_loss.value();
}

}  // namespace

TEST_CASE("the loss of an evaluation is that of all held-out rows, on any number of ranks",
          "[stages]") {
  REQUIRE(text().held_out() == 7);
  const double row_by_row = loss_of_evaluation(StageKind::ddp, 1, 1);
  const StageKind stage = GENERATE(StageKind::ddp, StageKind::zero3);
  const int ranks = GENERATE(1, 2, 3);
  const int64_t rows = GENERATE(2, 3, 5);  // the last pass has fewer, and some ranks have none
  // Losses are fp32, whose rounding is below 1e-7 of them.
  CHECK(std::abs(loss_of_evaluation(stage, ranks, rows) / row_by_row - 1) < 1e-6);
}
