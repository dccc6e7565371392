// Learning, held against numbers that can be computed: the entropy of a Markov source, and ln V at
// the start.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "nn/data/markov.h"
#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"

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
