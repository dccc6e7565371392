// The four stages against a plain loop in one process, and stages that forget something against
// both.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/diagnosis/plain_training.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// zero1 whose ranks keep their updates to themselves.
class WithoutAllGather final : public Stage {
  using Stage::Stage;
  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState& u) override { return reduce_scatter(u, u.full_gradient); }
  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(local_shard(u.full_parameter), local_shard(u.full_gradient), step.lr,
                        step.gradient_scale);
  }
};

// ddp whose ranks do not communicate gradients.
class WithoutAllReduce final : public Stage {
  using Stage::Stage;
  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    u.optimizer = new_full_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState&) override { return {}; }
  void update(UnitState& u, const Update& step) override {
    u.optimizer->update(u.full_parameter, u.full_gradient, step.lr, step.gradient_scale);
  }
};

template <class S>
std::unique_ptr<Stage> started(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                               const StageOptions& options) {
  auto stage = std::make_unique<S>(units, comm, memory, options);
  stage->start();
  return stage;
}

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
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
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

TEST_CASE("a stage that forgets a communication is noticed by the comparison of bits", "[stages]") {
  StageRunSpec spec{.ranks = 2};
  const PlainRun plain = train_in_a_plain_loop(spec);
  spec.make = started<WithoutAllGather>;
  CHECK_FALSE(same(run_stage(spec), plain));
  spec.make = started<WithoutAllReduce>;
  CHECK_FALSE(same(run_stage(spec), plain));
  spec.ranks = 1;  // alone, there is nothing to forget
  CHECK(same(run_stage(spec), train_in_a_plain_loop(spec)));
}
