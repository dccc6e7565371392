// Whole runs on several compute threads per rank: the bits of one thread, under each stage.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"
#include "tests/nn/data/markov.h"
#include "tests/with_threads.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kThreadsWindow = 33;

// Every kernel of its steps has more elements than the grain of a thread.
GptTrainingSpec spec_of(const Windows& windows, Dtype precision) {
  GptTrainingSpec spec = gpt_spec(
      {.layers = 2, .heads = 3, .width = 3 * 43, .block_size = kThreadsWindow, .vocab = 307},
      kThreadsWindow);
  spec.data = &windows;
  spec.ranks = 2;
  spec.micro_batch = 5;
  spec.steps = 3;
  spec.engine.precision = precision;
  spec.engine.gradient_clipping = 0.5;
  return spec;
}

const Windows& data() {
  static const Windows windows(TokenData::of_text("markov", MarkovSource(5).generate(2000)),
                               kThreadsWindow);
  return windows;
}

Comparison compare_on(const TrainingSpec& spec, int threads) {
  const WithThreads with(threads);
  return compare_stages(spec, {std::begin(kStages), std::end(kStages)});
}

}  // namespace

TEST_CASE("a run on three threads per rank has the bits of one thread under each stage",
          "[stages]") {
  const Dtype precision = GENERATE(Dtype::f32, Dtype::bf16);
  CAPTURE(name(precision));
  GptTrainingSpec spec = spec_of(data(), precision);
  REQUIRE(spec.micro_batch * kThreadsWindow * spec.model.width > 2 * kGrain);
  const Comparison alone = compare_on(spec, 1), together = compare_on(spec, 3);
  CHECK(alone.ok());
  CHECK(together.ok());  // predictions of memory are exact on any number of threads
  REQUIRE(alone.stages.size() == 4);
  REQUIRE(together.stages.size() == 4);
  for (size_t i = 0; i < alone.stages.size(); ++i) {
    const StageOutcome &a = alone.stages[i], &b = together.stages[i];
    CAPTURE(name(a.stage));
    CHECK(a.weights_hash == b.weights_hash);
    for (size_t step = 0; step < a.steps.size(); ++step) {
      CHECK(a.steps[step].loss == b.steps[step].loss);
      CHECK(a.steps[step].grad_norm == b.steps[step].grad_norm);
    }
  }
  spec.engine.seed += 1;
  CHECK(compare_on(spec, 3).stages[0].weights_hash != alone.stages[0].weights_hash);
}
