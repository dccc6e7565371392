// What happens in the cases that training loops argue about. The names of these tests are the
// sentences of tutorials/reference/semantics.md; a test in tests/architecture holds the two
// together.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <iterator>
#include <memory>

#include "stages/train/weights.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/engine_run.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

int64_t gradient_calls(const CommunicationLog& log) {
  int64_t calls = 0;
  for (const auto& [key, t] : log.rows())
    if (key.purpose == Purpose::gradient) calls += t.calls;
  return calls;
}

// Calls that gradients had made after each micro-batch, on rank 0.
std::vector<int64_t> gradient_calls_by_micro_batch(StageRunSpec spec) {
  std::vector<int64_t> calls;
  spec.after_backward = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() == 0) calls.push_back(gradient_calls(comm.log()));
  };
  run_stage(spec);
  return calls;
}

// The weights of one parameter, by its name.
std::vector<float> weights_of(const StageRunSpec& spec, const StageRun& run,
                              const std::string& name) {
  OddModel model(spec.model);
  size_t at = 0;
  for (const Unit& u : model.units())
    for (const Parameter* p : u.parameters) {
      const size_t n = size_t(p->numel());
      if (p->name == name)
        return {run.weights.begin() + int64_t(at), run.weights.begin() + int64_t(at + n)};
      at += n;
    }
  return {};
}

StageRunSpec frozen(StageRunSpec spec, const std::string& name) {
  spec.make = [name](std::vector<Unit>& units, Communicator& comm, Memories memories,
                     const Options& options) {
    for (Unit& u : units)
      for (Parameter* p : u.parameters) p->requires_grad = p->name != name;
    return make_stage(units, comm, memories, options);
  };
  return spec;
}

}  // namespace

// ---- accumulation

TEST_CASE(
    "ddp and zero1 reduce gradients in the last micro-batch of a step only; zero2 and zero3 in "
    "every one",
    "[stages]") {
  const StageKind stage = any_stage();
  const auto calls =
      gradient_calls_by_micro_batch({.stage = stage, .ranks = 2, .micro_batches = 3, .steps = 1});
  const int64_t units = 3;
  if (!shards_gradient(stage))
    CHECK(calls == std::vector<int64_t>{0, 0, units});
  else
    CHECK(calls == std::vector<int64_t>{units, 2 * units, 3 * units});
}

TEST_CASE(
    "step() updates after the last backward of gradient_accumulation_steps micro-batches and does "
    "nothing before",
    "[stages]") {
  const auto did = on_three_ranks({.stage = any_stage(), .accumulation = 3}, [](EngineRun& run) {
    for (int micro_batch = 0; micro_batch < 6; ++micro_batch) {
      run.backward();
      const bool boundary = run.engine.is_gradient_accumulation_boundary(),
                 stepped = run.engine.step().has_value();
      run.note(boundary ? "boundary" : "inside", stepped ? "+" : "-", run.engine.updates());
    }
  });
  CHECK(did == all_three("inside-0 inside-0 boundary+1 inside-1 inside-1 boundary+2 "));
}

TEST_CASE(
    "a forward pass without its backward, or one more while step() is due, is an error on every "
    "rank",
    "[stages]") {
  const auto did = on_three_ranks({.stage = any_stage()}, [](EngineRun& run) {
    run.backward();
    run.note(run.forward_is_refused() ? "step is due" : "no error");
    run.engine.step();
    Var loss = run.forward();
    run.note(run.forward_is_refused() ? "backward is due" : "no error");
    run.engine.backward(loss);
    run.note(run.engine.step().has_value() ? "went on" : "did not");
  });
  CHECK(did == all_three("step is due backward is due went on "));
}

TEST_CASE("a unit that runs in an earlier micro-batch of a step only is reduced with the last",
          "[stages]") {
  StageRunSpec spec{.ranks = 3, .micro_batches = 2, .steps = 3, .lr = 0.5, .max_norm = 0};
  spec.options.optimizer.kind = OptimizerKind::sgd;
  const auto every_second = std::make_shared<std::vector<int>>(3);
  spec.after_backward = [=](Stage&, OddModel& model, Communicator& comm, Memory&) {
    model.shallow = ++(*every_second)[size_t(comm.rank())] % 2 == 1;
  };
  const auto under = [&](StageKind stage) {
    spec.stage = stage;
    return run_stage(spec);
  };
  const StageRun ddp = under(StageKind::ddp), zero2 = under(StageKind::zero2);
  CHECK(under(StageKind::zero1).same_bits(ddp));
  CHECK(under(StageKind::zero3).same_bits(zero2));
  double largest = 0;
  for (size_t i = 0; i < ddp.weights.size(); ++i)
    largest = std::max(largest, double(std::abs(ddp.weights[i] - zero2.weights[i])));
  CHECK(largest < 1e-6);  // zero2 reduces every micro-batch by itself
  spec.after_backward = nullptr;
  CHECK_FALSE(under(StageKind::ddp).same_bits(ddp));
}

// ---- parameters that are special

TEST_CASE("a parameter that no loss uses has a gradient of zero: it moves by weight decay alone",
          "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{.stage = stage, .ranks = 3, .steps = 0, .model = {.unused_parameter = true}};
  const auto before = weights_of(spec, run_stage(spec), "block1.unused");
  spec.steps = 4;
  CHECK(weights_of(spec, run_stage(spec), "block1.unused") == before);
  spec.options.optimizer.weight_decay = 0.1;
  auto decayed = before;
  for (float& w : decayed)
    for (int step = 0; step < 4; ++step) w *= float(1 - spec.lr * 0.1);
  CHECK(weights_of(spec, run_stage(spec), "block1.unused") == decayed);
}

TEST_CASE("a unit that no forward pass runs is not reduced, and is updated with a gradient of zero",
          "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{.stage = stage, .ranks = 2, .steps = 1, .model = {.unused_unit = true}};
  const auto calls = gradient_calls_by_micro_batch(spec);
  CHECK(calls == std::vector<int64_t>{3});  // root and two blocks
  spec.options.optimizer.weight_decay = 0.1;
  StageRunSpec still = spec;
  still.steps = 0;
  auto decayed = weights_of(spec, run_stage(still), "idle.weight");
  for (float& w : decayed) w *= float(1 - spec.lr * 0.1);
  CHECK(weights_of(spec, run_stage(spec), "idle.weight") == decayed);
}

TEST_CASE(
    "a frozen parameter never changes, not even by weight decay, and its memory and traffic are as "
    "if it were trained",
    "[stages]") {
  const StageKind stage = any_stage();
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const bool offload = GENERATE(false, true);
  StageRunSpec spec{.stage = stage,
                    .ranks = 3,
                    .model = {.blocks = 3},
                    .offload = offload && stage != StageKind::ddp};
  spec.options.precision = dtype;
  spec.options.optimizer.weight_decay = 0.1;
  StageRunSpec still = spec;
  still.steps = 0;
  const auto before = weights_of(spec, run_stage(still), "block0.up");
  const StageRun run = run_stage(frozen(spec, "block0.up"));
  CHECK(weights_of(spec, run, "block0.up") == before);
  CHECK_FALSE(weights_of(spec, run_stage(spec), "block0.up") == before);
  CHECK_FALSE(weights_of(spec, run, "block0.down") ==
              weights_of(spec, run_stage(still), "block0.down"));
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(gradient_calls(run.logs[0]) == gradient_calls(run_stage(spec).logs[0]));
}

TEST_CASE("a frozen parameter has no part in the norm, and all stages keep the same bits",
          "[stages]") {
  StageRunSpec spec{.ranks = 3, .steps = 1};
  const StageRun ddp = run_stage(frozen(spec, "block0.up"));
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    spec.stage = stage;
    CHECK(run_stage(frozen(spec, "block0.up")).same_bits(ddp));
  }
  // By the Pythagorean theorem: all gradients, without the frozen one's.
  double square = 0;
  spec = {.ranks = 3, .steps = 1};
  spec.after_backward = [&](Stage& stage, OddModel& model, Communicator& comm, Memory&) {
    if (comm.rank() != 0) return;
    const UnitState& m = stage.state(model.units()[1]);
    for (const Partition::Piece& piece : m.partition.pieces(0, m.partition.full()))
      if (piece.parameter->name == "block0.up")
        for (const float g :
             kernel::download_floats(kept_gradient(m).slice(piece.at, {piece.count})))
          square += double(g) * g;
  };
  const double all = run_stage(spec).norms[0];
  CHECK(square > 0);
  CHECK(std::abs(ddp.norms[0] - std::sqrt(all * all - square)) < 1e-6 * all);
}

TEST_CASE("a unit that runs twice adds both gradients and is reduced once", "[stages]") {
  const StageKind stage = any_stage();
  const StageRunSpec twice{.stage = stage, .ranks = 2, .steps = 1, .model = {.block_twice = true}};
  CHECK(gradient_calls_by_micro_batch(twice) == std::vector<int64_t>{3});
  StageRunSpec once = twice;
  once.model.block_twice = false;
  CHECK(run_stage(once).norms != run_stage(twice).norms);
}

// ---- clipping and overflow

TEST_CASE(
    "the norm is that of the mean gradient over ranks and micro-batches, without the loss scale",
    "[stages]") {
  SettingsRow pick = any_pair({4, 4, 2, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 2, 3, 8}), micro_batches = pick.next({1, 4});
  const double scale = pick.next({1.0, 1024.0});
  StageRunSpec spec{.stage = stage,
                    .ranks = ranks,
                    .micro_batches = micro_batches,
                    .steps = 1,
                    .model = {.unused_parameter = true},
                    .scale = scale};
  // Each rank's sum of micro-batches becomes the loss scale times their number: a mean gradient of
  // ones.
  spec.after_backward = [&](Stage& s, OddModel& model, Communicator& comm, Memory&) {
    set_gradients(s, model, comm, scale * micro_batches);
  };
  OddModel model(spec.model);
  int64_t parameters = 0;
  for (const Unit& u : model.units()) parameters += u.numel();
  CHECK(run_stage(spec).norms[0] == std::sqrt(double(parameters)));
}

TEST_CASE(
    "clipping cuts by one factor, with accumulation, a loss scale, tied, unused and frozen "
    "parameters and a unit that runs twice",
    "[stages]") {
  StageRunSpec spec{.ranks = 3,
                    .micro_batches = 3,
                    .steps = 1,
                    .model = {.block_twice = true, .unused_parameter = true},
                    .lr = 1,
                    .scale = 256};
  spec.options.optimizer.kind = OptimizerKind::sgd;  // the weights move by lr * factor * gradient
  SettingsRow pick = any_pair({4, 3});
  spec.stage = pick.next_stage();
  spec.options.precision = pick.next({Dtype::f32, Dtype::bf16, Dtype::f16});
  CAPTURE(name(spec.stage), name(spec.options.precision));
  const auto with_limit = [&](double max_norm) {
    spec.max_norm = max_norm;
    return run_stage(frozen(spec, "block1.down"));
  };
  const StageRun full = with_limit(0);
  const double norm = full.norms[0];
  CHECK(with_limit(1000 * norm).same_bits(full));
  const StageRun clipped = with_limit(norm / 4);
  CHECK(clipped.norms == full.norms);  // it is reported as it was before clipping
  CHECK_FALSE(clipped.same_bits(full));
  spec.steps = 0;
  const StageRun before = with_limit(0);
  const auto weight = [](const StageRun& run, size_t i) {  // in fp32
    return double((run.master.empty() ? run.weights : run.master)[i]);
  };
  double largest = 0;
  for (size_t i = 0; i < full.weights.size(); ++i) {
    const double moved = weight(full, i) - weight(before, i);
    largest = std::max(largest, std::abs(weight(clipped, i) - weight(before, i) - moved / 4));
  }
  CHECK(largest < 1e-5);
}

TEST_CASE(
    "a step whose gradient is not finite on any rank is skipped on all: weights, moments and "
    "schedule stay, gradients are cleared",
    "[stages]") {
  Options config{.stage = any_stage()};
  config.schedule = {.kind = ScheduleKind::warmup, .warmup_max_lr = 0.1, .warmup_num_steps = 10};
  const auto weights = [&](EngineRun& run) {
    std::vector<float> all;
    visit_weights(run.engine.stage(), [&](const Parameter&, const Tensor& data) {
      std::ranges::copy(kernel::download_floats(data), std::back_inserter(all));
    });
    return all;
  };
  const auto step = [](EngineRun& run, bool overflow) {
    run.model.spoiled = overflow && run.comm.rank() == 1 ? "block0.up" : "";
    run.backward();
    return run.engine.step()->skipped;
  };
  const auto did = on_three_ranks(config, [&](EngineRun& run) {
    step(run, false);
    step(run, false);
    const auto before = weights(run);
    const double lr = run.engine.learning_rate();
    const bool skipped = step(run, true);
    run.note(skipped ? "skipped" : "made",
             run.engine.learning_rate() == lr ? ", same rate" : ", other rate",
             weights(run) == before ? ", same weights" : ", other weights");
    bool cleared = true;
    for (const Unit& u : run.model.units())
      for (const float g : kernel::download_floats(kept_gradient(run.engine.stage().state(u))))
        cleared = cleared && g == 0;
    run.note(cleared ? "cleared" : "left");
    const bool skipped_again = step(run, false);
    run.note(skipped_again ? "skipped" : "made",
             run.engine.learning_rate() > lr ? ", next rate" : ", same rate",
             weights(run) == before ? ", same weights" : ", other weights");
  });
  CHECK(did ==
        all_three("skipped, same rate, same weights cleared made, next rate, other weights "));
}

TEST_CASE("the loss scale changes only between steps and alike on all ranks, by DeepSpeed's rules",
          "[stages]") {
  const Options config{.stage = any_stage(),
                       .accumulation = 2,
                       .precision = Dtype::f16,
                       .loss_scale = {.initial_scale_power = 8, .window = 3, .hysteresis = 1}};
  const auto did = on_three_ranks(config, [](EngineRun& run) {
    for (int step = 1; step <= 7; ++step)
      for (int a = 0; a < 2; ++a) {
        run.model.spoiled = step == 2 && a == 0 && run.comm.rank() == 2 ? "block1.up" : "";
        run.backward();
        run.note(run.engine.loss_scale());
        run.engine.step();
      }
  });
  // Step 2 overflows in its first micro-batch; three good ones follow, and the fourth doubles the
  // scale.
  CHECK(did == all_three("256 256 256 256 128 128 128 128 128 128 128 128 256 256 "));
}

TEST_CASE("an evaluation between two steps or two micro-batches changes no bit of the training",
          "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{.stage = stage, .ranks = 2, .micro_batches = 2, .steps = 3};
  const StageRun plain = run_stage(spec);
  std::vector<double> losses;
  const auto evaluate = [&](Stage& s, OddModel& model, Communicator& comm, Memory& memory) {
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {1, 4}, Dtype::i32);
    StepSchedule observer(s);
    const double loss = kernel::read(model.loss(nullptr, observer, {ids, ids}).value());
    if (comm.rank() == 0) losses.push_back(loss);
  };
  spec.after_backward = spec.after_step = evaluate;
  CHECK(run_stage(spec).same_bits(plain));
  REQUIRE(losses.size() == 9);
  for (const double loss : losses) CHECK(std::isfinite(loss));
}
