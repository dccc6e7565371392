// Whole runs: learning, held against numbers that can be computed; the loss of an evaluation, which
// does not depend on how its rows are divided into passes and over ranks; GPUs that open late.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"
#include "tests/nn/data/markov.h"

using namespace zl;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZEROLAB_SANITIZED 1
#else
#define ZEROLAB_SANITIZED 0
#endif

using namespace zl;

namespace {

TrainingSpec tiny_on(const Windows& windows, int64_t steps) {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  spec.data = &windows;
  spec.micro_batch = 8;
  spec.steps = steps;
  spec.engine.optimizer.lr = 2e-3;
  spec.engine.schedule = {.kind = ScheduleKind::warmup_cosine,
                          .warmup_num_steps = 20,
                          .warmup_type = WarmupType::linear,
                          .total_num_steps = steps};
  return spec;
}

double mean_of_last(const TrainingResult& result, size_t n) {
  double sum = 0;
  for (size_t i = result.steps.size() - n; i < result.steps.size(); ++i)
    sum += result.steps[i].loss;
  return sum / double(n);
}

}  // namespace

TEST_CASE("the loss on a Markov source comes within 2 % of the source's entropy", "[stages]") {
  if (ZEROLAB_SANITIZED)
    SKIP(
        "a thousand steps take minutes under a sanitizer, and it has seen every one of them after "
        "three");
  const MarkovSource source(1337);
  const Windows windows(TokenData::of_text("markov", source.generate(1000 * 8 * 32 + 1)), 32);
  const TrainingResult result = run_training(tiny_on(windows, 1000));
  const double last = mean_of_last(result, 50);
  CAPTURE(last, source.entropy());
  CHECK(std::abs(last / source.entropy() - 1) < 0.02);
  CHECK(std::abs(result.steps.front().loss / source.entropy() - 1) >
        0.5);  // the twin: not before it has learned
}

TEST_CASE("the loss starts near ln V, since initial logits say next to nothing", "[stages]") {
  const Windows windows(TokenData::of_text("markov", MarkovSource(2).generate(3000)), 32);
  const TrainingResult result = run_training(tiny_on(windows, 1));
  CHECK(std::abs(result.steps[0].loss - std::log(256.0)) < 0.1);
}

namespace {

constexpr int64_t kWindow = 5;  // [n]

// 65 windows, of which the last 7 are held out. Their texts differ, and so do their losses.
const Windows& varied_text() {
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
  spec.data = &varied_text();
  spec.rank_options.timeout = std::chrono::seconds(20);
  return run_training(spec).steps[0].eval_loss.value();
}

}  // namespace

TEST_CASE("the loss of an evaluation is that of all held-out rows, on any number of ranks",
          "[stages]") {
  REQUIRE(varied_text().held_out() == 7);
  const double row_by_row = loss_of_evaluation(StageKind::ddp, 1, 1);
  const StageKind stage = GENERATE(StageKind::ddp, StageKind::zero3);
  const int ranks = GENERATE(1, 2, 3);
  const int64_t rows = GENERATE(2, 3, 5);  // the last pass has fewer, and some ranks have none
  // Losses are fp32, whose rounding is below 1e-7 of them.
  CHECK(std::abs(loss_of_evaluation(stage, ranks, rows) / row_by_row - 1) < 1e-6);
}

TEST_CASE("a GPU may take longer to open than the deadline of a call", "[stages]") {
  using namespace std::chrono_literals;
  const Windows windows(TokenData::of_text("text", std::string(200, 'a')), 8);
  GptTrainingSpec spec =
      gpt_spec({.layers = 1, .heads = 1, .width = 8, .block_size = 8, .vocab = 257}, 8);
  spec.data = &windows;
  spec.ranks = 3;
  spec.steps = 1;
  spec.rank_options.timeout = 300ms;
  const auto late_in = [&](int rank_to_wait_for) {
    spec.backends = [=](int rank) {
      if (rank == rank_to_wait_for) std::this_thread::sleep_for(900ms);
      return RankBackends{};
    };
    return run_training(spec).steps.size();
  };
  CHECK(late_in(2) == 1);

  // Twin: a rank that comes late to a call of the step ends the run.
  TrainingCallbacks late;
  late.at_start = [](Trainer& trainer) {
    if (trainer.comm().rank() == 2) std::this_thread::sleep_for(900ms);
  };
  CHECK_THROWS_AS(run_training(spec, late), CommunicationError);
}
