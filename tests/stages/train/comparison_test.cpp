// compare judges every stage by itself, also where stages do not promise the same bits, and takes
// any model.
#include "stages/train/comparison.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>

#include "stages/predict/dry_run.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/checkpoint/checkpoint_run.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

GptTrainingSpec three_micro_batches(const Windows& windows, int64_t rows = 2) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.engine.accumulation = 3;
  spec.micro_batch = rows;
  spec.steps = 2;
  spec.ranks = 3;
  spec.data = &windows;
  return spec;
}

const Windows& text() {
  static const Windows windows = text_in_windows(9);
  return windows;
}

// zero2 with one mistake.
enum class Mistake {
  none,
  copies,
  loses_the_second,
  first_shard_everywhere,
  sums,
  nan,
  gathers_nothing,
  slow_rank,  // its learning rate is 1 % lower
};

bool gradient_is_wrong(Mistake mistake) {
  return mistake != Mistake::none && mistake != Mistake::gathers_nothing &&
         mistake != Mistake::slow_rank;
}

// What compare says of each.
std::string meaning(Mistake mistake) {
  switch (mistake) {
    case Mistake::copies: return "only the last micro-batch's gradient is there";
    case Mistake::first_shard_everywhere: return "right on rank 0 only";
    case Mistake::sums: return "every gradient is 3.00 x ddp's: a sum over ranks, not a mean";
    case Mistake::nan: return "in h.1 only: the gradient has NaN";
    case Mistake::gathers_nothing:
      return "each rank has the new values of its local shard only: the updated parameters were";
    case Mistake::slow_rank: return "the gradient is right, but the updated parameters are not";
    case Mistake::loses_the_second:  // a number of micro-batches that no sentence is made for
    case Mistake::none: break;
  }
  return "";
}

class WrongZero2 final : public Stage {
 public:
  WrongZero2(std::vector<Unit>& units, Communicator& comm, Memories memories,
             const Options& options, Mistake mistake)
      : Stage(units, comm, memories, options), mistake_(mistake) {}

 private:
  void allocate(UnitState& u) override {
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    u.optimizer = new_shard_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override {
    if (mistake_ != Mistake::sums) return reduce_scatter(u, u.full_gradient);
    return comm().reduce_scatter(u.full_gradient, Reduction::sum,
                                 {u.name() + " gradient", Purpose::gradient});
  }
  void after_reduce(UnitState& u) override {
    const Tensor shard = mistake_ == Mistake::first_shard_everywhere
                             ? u.full_gradient.slice(0, {u.partition.shard()})
                             : local_shard(u.full_gradient);
    if (mistake_ == Mistake::nan && u.name() == "h.1" && comm().rank() == 2)
      kernel::fill(std::nan(""), shard.slice(5, {1}));
    if (mistake_ == Mistake::copies)
      kernel::copy(shard, u.gradient_shard);
    else if (mistake_ != Mistake::loses_the_second || reduced_[u.unit]++ % 3 != 1)
      kernel::accumulate(shard, u.gradient_shard);
    u.full_gradient = {};
  }
  void update(UnitState& u, const Update& step) override {
    const bool slow = mistake_ == Mistake::slow_rank && comm().rank() == 1;
    u.optimizer->update(local_shard(u.full_parameter), u.gradient_shard,
                        slow ? 0.99 * step.lr : step.lr, step.gradient_scale);
  }
  Work after_update(UnitState& u) override {
    return mistake_ == Mistake::gathers_nothing ? Work() : all_gather(u, u.full_parameter);
  }

  Mistake mistake_;
  std::map<const Unit*, int> reduced_;  // micro-batches of a unit, so far
};

TrainingSpec with_wrong_zero2(TrainingSpec spec, Mistake mistake) {
  spec.make_stage = [mistake](std::vector<Unit>& units, Communicator& comm, Memories memories,
                              const Options& options) {
    if (options.stage != StageKind::zero2) return make_stage(units, comm, memories, options);
    std::unique_ptr<Stage> stage =
        std::make_unique<WrongZero2>(units, comm, memories, options, mistake);
    stage->start();
    return stage;
  };
  return spec;
}

}  // namespace

TEST_CASE(
    "with several micro-batches each stage is held against ddp, and a wrong one is found alone",
    "[stages]") {
  SettingsRow pick = any_pair({7, 2, 2});
  const Mistake mistake = pick.next({Mistake::none, Mistake::copies, Mistake::loses_the_second,
                                     Mistake::first_shard_everywhere, Mistake::sums,
                                     Mistake::gathers_nothing, Mistake::slow_rank});
  const Dtype precision = pick.next({Dtype::f32, Dtype::bf16});
  const bool with_zero3 = pick.next({false, true});
  CAPTURE(int(mistake), name(precision), with_zero3);
  TrainingSpec spec =
      with_wrong_zero2(three_micro_batches(text(), precision == Dtype::f32 ? 2 : 32), mistake);
  spec.engine.precision = precision;
  std::vector<StageKind> stages{StageKind::ddp, StageKind::zero2};
  if (with_zero3) stages.push_back(StageKind::zero3);
  const Comparison comparison = compare_stages(spec, stages);
  CHECK(comparison.ok() == (mistake == Mistake::none));
  for (const StageOutcome& s : comparison.stages) {
    CAPTURE(name(s.stage));
    CHECK(s.gradient_within_bound() ==
          (s.stage != StageKind::zero2 || !gradient_is_wrong(mistake)));
    CHECK(s.gradient_deviation.has_value() == (s.stage != StageKind::ddp));
    const bool wrong = s.stage == StageKind::zero2 && mistake != Mistake::none;
    CHECK(s.diagnosis.found() == wrong);
    if (wrong) CHECK_THAT(s.diagnosis.meaning, Catch::Matchers::StartsWith(meaning(mistake)));
  }
}

TEST_CASE("the deviation of a gradient names rank, parameter, element and both values",
          "[stages]") {
  const Comparison comparison = compare_stages(
      with_wrong_zero2(three_micro_batches(text()), Mistake::sums), {StageKind::zero2});
  const GradientDeviation d = comparison.stages[1].gradient_deviation.value();
  CHECK(d.part_of_bound > 1000);
  CHECK(d.parameter.find('.') != std::string::npos);
  CHECK(d.element >= 0);
  CHECK(std::abs(d.value / d.value_of_ddp - 3) < 1e-5);  // a sum over 3 ranks, not a mean
}

TEST_CASE("the diagnosis needs no right ddp, and one micro-batch is enough", "[stages]") {
  GptTrainingSpec spec = three_micro_batches(text());
  spec.engine.accumulation = 1;
  const bool wrong_ddp = GENERATE(false, true);
  spec.make_stage = [&](std::vector<Unit>& units, Communicator& comm, Memories memories,
                        const Options& options) {
    const bool wrong = options.stage == (wrong_ddp ? StageKind::ddp : StageKind::zero1);
    if (!wrong) return make_stage(units, comm, memories, options);
    std::unique_ptr<Stage> stage =
        std::make_unique<WrongZero2>(units, comm, memories, options, Mistake::sums);
    stage->start();
    return stage;
  };
  const Comparison comparison = compare_stages(spec, {StageKind::ddp, StageKind::zero1});
  CHECK_FALSE(comparison.ok());
  CHECK_THAT(comparison.stages[wrong_ddp ? 0 : 1].diagnosis.meaning,
             Catch::Matchers::ContainsSubstring("a sum over ranks, not a mean"));
  CHECK_FALSE(comparison.stages[wrong_ddp ? 1 : 0].diagnosis.found());
}

TEST_CASE("an empty parameter has its tensors, and no factor is named by chance", "[stages]") {
  GptTrainingSpec spec = three_micro_batches(text());
  spec.make_model = [] {
    auto model = std::make_unique<OddModel>(OddModelOptions{});
    model->parameters().push_back({.name = "none", .shape = {0}});
    model->units()[1].parameters.push_back(&model->parameters().back());
    return model;
  };
  PlainTraining plain(spec);
  const Parameter& none = *plain.model().units()[1].parameters.back();
  CHECK((none.data.defined() && none.grad.defined()));
  const FlatLayout flat(plain.model().units(), 1);
  const FlatValues ones(size_t(flat.size()), 1.0f), more(ones.size(), 2.01f);
  std::vector<std::vector<FlatValues>> alone{{ones}};
  CHECK(diagnose_gradient({flat, alone, .02}, {more}).meaning == "every gradient is 2.01 x ddp's");
  alone[0][0][0] = std::nanf("");
  CHECK(diagnose_gradient({flat, alone}, {ones}).meaning == "in root only: it differs from ddp's");
}

TEST_CASE("a deviation that is not a number is named like any other", "[stages]") {
  const Comparison comparison = compare_stages(
      with_wrong_zero2(three_micro_batches(text()), Mistake::nan), {StageKind::zero2});
  const GradientDeviation d = comparison.stages[1].gradient_deviation.value();
  CHECK(d.rank == 2);
  CHECK(d.parameter.starts_with("h.1."));
  CHECK(std::isnan(d.value));
  CHECK(std::isfinite(d.value_of_ddp));
  CHECK_FALSE(comparison.ok());
}

TEST_CASE("the bound holds in bf16 and f16, with gradients accumulated and sent in other types",
          "[stages]") {
  GptTrainingSpec spec = three_micro_batches(text());
  SettingsRow pick = any_pair({2, 2, 2});
  spec.engine.precision = pick.next({Dtype::bf16, Dtype::f16});
  if (pick.next({false, true})) spec.engine.grad_accum_dtype = Dtype::f32;
  if (pick.next({false, true})) spec.engine.communication_data_type = Dtype::f32;
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  CHECK(comparison.ok());
  for (const StageOutcome& s : comparison.stages)
    if (s.gradient_deviation) CHECK(s.gradient_deviation->part_of_bound < 1);
}

TEST_CASE("compare and plan take any model: one with a unit that runs twice, predicted to the byte",
          "[stages]") {
  const StageRunSpec odd{.micro_batches = GENERATE(1, 2, 5),
                         .steps = 2,
                         .model = {.block_twice = GENERATE(false, true), .unused_parameter = true}};
  const auto data = odd_data(odd);
  const TrainingSpec spec = training_spec(odd, *data);
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  CHECK(comparison.ok());
  for (const StageOutcome& s : comparison.stages) {
    const StagePlan plan = plan_stage(spec, s.stage, 0);
    CHECK(plan.peak_total == s.peak_total[0]);
    int64_t planned = 0, sent = 0;
    for (const TrafficRow& row : plan.traffic)
      if (row.purpose != Purpose::check) planned += row.predicted_sent;
    for (const TrafficRow& row : s.traffic) sent += row.sent;
    CHECK(planned == sent);
  }
}

TEST_CASE("a model whose units run twice is predicted in steps that overflow, too", "[stages]") {
  const StageRunSpec odd{.ranks = 2, .steps = 2, .model = {.block_twice = true}};
  const auto data = odd_data(odd);
  TrainingSpec spec = training_spec(odd, *data);
  spec.engine.precision = Dtype::f16;
  spec.engine.loss_scale = {.initial_scale_power = 24, .hysteresis = 1};
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  CHECK(comparison.ok());
  CHECK(count(comparison.stages[0].steps).nonfinite > 0);
}

TEST_CASE("a comparison without a step has no gradient to judge", "[stages]") {
  GptTrainingSpec spec = three_micro_batches(text());
  spec.steps = 0;
  const Comparison compared = compare_stages(spec, {StageKind::zero2, StageKind::zero3});
  REQUIRE(compared.stages.size() == 3);
  for (const StageOutcome& stage : compared.stages) {
    CHECK_FALSE(stage.gradient_deviation);
    CHECK(stage.bitwise_equal);
  }
}

TEST_CASE(
    "a run without data or with rows of another shape is refused, and so is an evaluation without "
    "held-out rows",
    "[stages]") {
  GptTrainingSpec spec = three_micro_batches(text());
  spec.eval_every = 1;
  CHECK_THROWS_AS(run_training(spec), InputError);
  spec.eval_every = 0;
  spec.data = nullptr;
  CHECK_THROWS_AS(run_training(spec), InputError);
  spec = three_micro_batches(text());
  spec.input_row = {7};
  CHECK_THROWS_AS(run_training(spec), InputError);
}
