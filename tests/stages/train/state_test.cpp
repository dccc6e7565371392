// A run whose state is saved between two steps and restored in a fresh trainer goes on with the
// same bits.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"
#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

using Floats = std::vector<float>;

// Everything that a checkpoint would keep of one rank.
struct Saved {
  std::vector<Floats> parameters;              // of each unit
  std::vector<std::vector<Floats>> optimizer;  // of each unit: its state tensors
  std::vector<int64_t> updates;                // of each unit's optimizer
  Engine::State engine;
  RunPosition position;
};

enum class Leave { nothing, parameters, optimizer, updates, scaler, position };

void save(Trainer& trainer, Saved& saved) {
  for (const UnitState& u : trainer.engine().stage().units()) {
    saved.parameters.push_back(kernel::download_floats(kept_parameter(u)));
    saved.optimizer.emplace_back();
    for (const auto& tensor : u.optimizer->state())
      saved.optimizer.back().push_back(kernel::download_floats(tensor.tensor));
    saved.updates.push_back(u.optimizer->steps());
  }
  saved.engine = trainer.engine().state();
  saved.position = trainer.position();
}

void restore(Trainer& trainer, const Saved& saved, Leave leave) {
  std::vector<UnitState>& units = trainer.engine().stage().units();
  for (size_t i = 0; i < units.size(); ++i) {
    if (leave != Leave::parameters)
      kernel::upload_floats(saved.parameters[i], kept_parameter(units[i]));
    const auto state = units[i].optimizer->state();
    for (size_t t = 0; t < state.size() && leave != Leave::optimizer; ++t)
      kernel::upload_floats(saved.optimizer[i][t], state[t].tensor);
    if (leave != Leave::updates) units[i].optimizer->set_steps(saved.updates[i]);
  }
  Engine::State engine = saved.engine;
  if (leave == Leave::scaler) engine.scaler = trainer.engine().state().scaler;
  trainer.engine().restore(engine);
  if (leave != Leave::position) trainer.restore(saved.position);
}

const Windows& text() {
  static const Windows windows = [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += char('a' + i * i % 23);
    return Windows(TokenData::of_text("text", text), 9);
  }();
  return windows;
}

GptTrainingSpec spec_of(StageKind stage, Dtype precision) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.engine.stage = stage;
  spec.engine.precision = precision;
  spec.engine.accumulation = 2;
  // In f16 the first steps overflow, so the state of the scaler matters.
  spec.engine.loss_scale = {.initial_scale_power = 20, .hysteresis = 1};
  spec.micro_batch = 2;
  spec.ranks = 3;
  spec.data = &text();
  return spec;
}

struct Bits {
  std::vector<double> losses;
  Floats weights;
  bool operator==(const Bits&) const = default;
};

Bits run(TrainingSpec spec, int64_t steps, const std::function<void(Trainer&)>& at_start,
         const std::function<void(Trainer&)>& at_end) {
  spec.steps = steps;
  Bits bits;
  const TrainingResult result = run_training(spec, {.at_start = at_start,
                                                    .after_backward = {},
                                                    .after_step = {},
                                                    .on_step = {},
                                                    .at_end = [&](Trainer& trainer) {
                                                      if (at_end) at_end(trainer);
                                                      Floats weights = collect_weights(trainer);
                                                      if (trainer.comm().rank() == 0)
                                                        bits.weights = std::move(weights);
                                                    }});
  for (const StepRecord& step : result.steps) bits.losses.push_back(step.loss);
  return bits;
}

}  // namespace

TEST_CASE("a trainer that continues from a saved state has the bits of one that never stopped",
          "[stages]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype precision = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  CAPTURE(name(stage), name(precision));
  const TrainingSpec spec = spec_of(stage, precision);
  constexpr int64_t kAll = 9, kBefore = 5;
  const Bits whole = run(spec, kAll, {}, {});
  std::vector<Saved> saved(3);
  run(spec, kBefore, {}, [&](Trainer& t) { save(t, saved[size_t(t.comm().rank())]); });
  const auto continued = [&](Leave leave) {
    const auto at_start = [&](Trainer& t) { restore(t, saved[size_t(t.comm().rank())], leave); };
    return run(spec, kAll, at_start, {});
  };
  const Bits rest = continued(Leave::nothing);
  CHECK(rest.weights == whole.weights);
  CHECK(rest.losses == std::vector<double>(whole.losses.begin() + kBefore, whole.losses.end()));
  for (const Leave leave : {Leave::parameters, Leave::optimizer, Leave::updates, Leave::position})
    CHECK_FALSE(continued(leave).weights == whole.weights);
  CHECK((continued(Leave::scaler).weights == whole.weights) == (precision != Dtype::f16));
}

TEST_CASE("a state is neither saved nor restored inside a step", "[stages]") {
  int refused = 0;
  run(spec_of(StageKind::zero1, Dtype::f32), 1, {}, {});
  TrainingSpec spec = spec_of(StageKind::zero1, Dtype::f32);
  spec.ranks = 1;
  spec.steps = 1;
  run_training(spec, {.after_backward = [&](Trainer& trainer) {
                 const Engine::State state;
                 try {
                   (void)trainer.engine().state();
                 } catch (const std::invalid_argument&) {
                   ++refused;
                 }
                 try {
                   trainer.engine().restore(state);
                 } catch (const std::invalid_argument&) {
                   ++refused;
                 }
               }});
  CHECK(refused == 4);
}
