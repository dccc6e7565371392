// The four stages against a plain loop in one process.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/diagnosis/plain_training.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

struct PlainRun {
  std::vector<double> losses, norms;
  std::vector<float> weights;  // all parameters in order, unpadded
};

// In the order of adding of spec.stage, which is not run.
PlainRun train_in_a_plain_loop(const StageRunSpec& spec) {
  const auto data = odd_data(spec);
  const TrainingSpec training = training_spec(spec, *data);
  PlainTraining plain(training);
  PlainRun run;
  for (int64_t step = 0; step < spec.steps; ++step) {
    const PlainStep result = plain.step(spec.lr);
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
  }
  const FlatValues padded = plain.weights();
  const FlatLayout layout(plain.model().units(), spec.ranks);
  for (size_t i = 0; i < padded.size(); ++i)
    if (layout.place(int64_t(i))) run.weights.push_back(padded[i]);
  return run;
}

// The same but for the order of adding: that of a stage of the other pair.
StageRunSpec in_the_other_order(StageRunSpec spec) {
  spec.stage = spec.stage < StageKind::zero2 ? StageKind::zero2 : StageKind::ddp;
  return spec;
}

bool same(const StageRun& run, const PlainRun& plain) {
  return run.losses == plain.losses && run.norms == plain.norms && run.weights == plain.weights;
}

}  // namespace

TEST_CASE(
    "each stage has the losses, norms and weights of a plain loop in one process, bit for bit",
    "[stages]") {
  const StageKind stage = any_stage();
  const int ranks = GENERATE(1, 2, 3, 4);
  const int micro_batches = GENERATE(1, 3);
  const auto recompute = GENERATE(Recompute::none, Recompute::selective, Recompute::full);
  CAPTURE(name(stage), ranks, micro_batches, name(recompute));
  const StageRunSpec spec{
      .stage = stage,
      .ranks = ranks,
      .micro_batches = micro_batches,
      .steps = 3,
      .model = {.block_twice = true, .unused_parameter = true, .recompute = recompute}};
  const StageRun run = run_stage(spec);
  CHECK(same(run, train_in_a_plain_loop(spec)));
  CHECK(same(run, train_in_a_plain_loop(in_the_other_order(spec))) == (micro_batches == 1));
}

TEST_CASE("the plain loop notices another seed", "[stages]") {
  StageRunSpec spec{.ranks = 3, .steps = 2};
  const StageRun run = run_stage(spec);
  spec.data_seed = 8;
  CHECK_FALSE(same(run, train_in_a_plain_loop(spec)));
}
