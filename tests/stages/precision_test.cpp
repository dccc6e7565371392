// bf16 and fp16 storage with fp32 master weights: equal bits in all stages, exact bytes, and a
// master that is what it says.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "stages/train/weights.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/engine_run.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec mixed(Dtype dtype, int ranks) {
  StageRunSpec spec{.ranks = ranks, .model = {.block_twice = true, .unused_parameter = true}};
  spec.options.precision = dtype;
  if (dtype == Dtype::f16) spec.scale = 1024;
  return spec;
}

StageRun run_as(StageRunSpec spec, StageKind stage) {
  spec.stage = stage;
  return run_stage(spec);
}

std::optional<Dtype> type_or_none(int which, Dtype dtype) {
  return which == 0   ? std::optional<Dtype>()
         : which == 1 ? Dtype::f32
         : which == 2 ? dtype
                      : Dtype::bf16;
}

int64_t sent(const StageRun& run, Purpose purpose) {
  int64_t bytes = 0;
  for (const auto& [key, t] : run.logs[0].rows())
    if (key.purpose == purpose) bytes += t.sent_bytes_times_n;
  return bytes;
}

}  // namespace

TEST_CASE(
    "in bf16 and fp16 all four stages have the same bits, whatever gradients are added and sent in",
    "[stages]") {
  SettingsRow pick = any_pair({2, 3, 2, 3});
  const Dtype dtype = pick.next({Dtype::bf16, Dtype::f16});
  const int ranks = pick.next({1, 2, 3}), accumulation = pick.next({0, 1}),
            communication = pick.next({0, 1, 3});
  CAPTURE(name(dtype), ranks, accumulation, communication);
  StageRunSpec spec = mixed(dtype, ranks);
  spec.options.grad_accum_dtype = type_or_none(accumulation, dtype);
  spec.options.communication_data_type = type_or_none(communication, dtype);
  const StageRun ddp = run_as(spec, StageKind::ddp);
  CHECK(ddp.skipped == std::vector<bool>(4, false));
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    CAPTURE(name(stage));
    CHECK(run_as(spec, stage).same_bits(ddp));
  }
}

TEST_CASE("with three micro-batches in bf16 and fp16 the pairs have the same bits", "[stages]") {
  const Dtype dtype = GENERATE(Dtype::bf16, Dtype::f16);
  const int accumulation = GENERATE(0, 1);
  StageRunSpec spec = mixed(dtype, 3);
  spec.micro_batches = 3;
  spec.options.grad_accum_dtype = type_or_none(accumulation, dtype);
  CHECK(run_as(spec, StageKind::zero1).same_bits(run_as(spec, StageKind::ddp)));
  const StageRun zero2 = run_as(spec, StageKind::zero2);
  CHECK(run_as(spec, StageKind::zero3).same_bits(zero2));
  CHECK_FALSE(zero2.same_bits(run_as(spec, StageKind::ddp)));
}

TEST_CASE("what gradients are added and sent in matters, and so does the precision", "[stages]") {
  StageRunSpec spec = mixed(Dtype::bf16, 3);
  spec.micro_batches = 3;
  const StageRun plain = run_stage(spec);
  StageRunSpec other = spec;
  other.options.grad_accum_dtype = Dtype::f32;
  const StageRun wide = run_stage(other);
  CHECK_FALSE(wide.same_bits(plain));
  other.options.communication_data_type = Dtype::bf16;
  CHECK_FALSE(run_stage(other).same_bits(wide));
  other = spec;
  other.options.precision = Dtype::f16;
  CHECK_FALSE(run_stage(other).same_bits(plain));
}

TEST_CASE("fp32 gradients stay nearer to the fp32 run than bf16 ones", "[stages]") {
  StageRunSpec spec{.ranks = 2, .micro_batches = 64, .steps = 1, .lr = 1, .max_norm = 0};
  spec.options.optimizer.kind = OptimizerKind::sgd;  // the weights move by the gradient itself
  const StageRun exact = run_stage(spec);
  const auto distance = [&](std::optional<Dtype> gradient) {
    StageRunSpec half = spec;
    half.options.precision = Dtype::bf16;
    half.options.grad_accum_dtype = gradient;
    const StageRun run = run_stage(half);
    double sum = 0;
    for (size_t i = 0; i < run.master.size(); ++i)
      sum += std::abs(double(run.master[i]) - double(exact.master[i]));
    return sum;
  };
  CHECK(distance(Dtype::f32) < 0.7 * distance(std::nullopt));
}

TEST_CASE(
    "after every step the parameters are the rounding of the master copy (MG #6336, CA "
    "807e01a4b)",
    "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2});
  const StageKind stage = pick.next_stage();
  const Dtype dtype = pick.next({Dtype::bf16, Dtype::f16});
  const int steps = pick.next({0, 3});  // after initialisation, too
  StageRunSpec spec = mixed(dtype, 3);
  spec.stage = stage;
  spec.steps = steps;
  const StageRun run = run_stage(spec);
  REQUIRE(run.master.size() == run.weights.size());
  bool all_rounded = true, any_differs = false;
  for (size_t i = 0; i < run.master.size(); ++i) {
    const float rounded =
        dtype == Dtype::bf16 ? float(bf16(run.master[i])) : float(f16(run.master[i]));
    all_rounded = all_rounded && rounded == run.weights[i];
    any_differs = any_differs || run.master[i] != run.weights[i];
  }
  CHECK(all_rounded);
  CHECK(any_differs);
}

TEST_CASE("loaded weights reach the master copy in full", "[stages]") {
  const StageKind stage = GENERATE(StageKind::ddp, StageKind::zero2, StageKind::zero3);
  StageRunSpec spec = mixed(Dtype::bf16, 3);
  spec.stage = stage;
  spec.steps = 0;
  spec.at_start = [](Stage& s, OddModel&, Communicator&, Memory&) {
    load_weights(s, [](const Parameter& p) {
      std::vector<float> values(size_t(p.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + float(i) / 4096;
      return values;
    });
  };
  const StageRun run = run_stage(spec);
  CHECK(run.master[1] == 1.0f + 1.0f / 4096);
  CHECK(run.weights[1] == 1.0f);  // as bf16 has it
}

TEST_CASE("bytes in mixed precision are 2+2+12, at rest and at the peak, in every stage",
          "[stages]") {
  SettingsRow pick = any_pair({4, 2, 2, 3, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 3}), accumulation = pick.next({0, 1}),
            communication = pick.next({0, 1, 2});
  const int64_t bucket = pick.next({1, 1'000'000});
  StageRunSpec spec{
      .stage = stage, .ranks = ranks, .micro_batches = 2, .steps = 2, .model = {.blocks = 3}};
  spec.options.precision = Dtype::bf16;
  spec.options.grad_accum_dtype = type_or_none(accumulation, Dtype::bf16);
  spec.options.communication_data_type = type_or_none(communication, Dtype::bf16);
  spec.options.reduce_bucket_size = bucket;
  CAPTURE(name(stage), ranks, accumulation, communication, bucket);
  const StageRun run = run_stage(spec);
  CHECK(off_the_prediction(spec, run) == "");
  if (accumulation == 0 && ranks == 1) {
    const MemoryLedger& l = run.ledgers[0];
    const int64_t p = l.live(MemoryUse::parameter) / 2;
    CHECK(l.live(MemoryUse::gradient) == 2 * p);
    CHECK(l.live(MemoryUse::optimizer_state) + l.live(MemoryUse::master_weights) == 12 * p);
  }
}

TEST_CASE("communication_data_type decides what a gradient weighs on its way, and nothing else",
          "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{.stage = stage, .ranks = 3, .steps = 1};
  const StageRun full = run_stage(spec);
  spec.options.communication_data_type = Dtype::f16;
  const StageRun half = run_stage(spec);
  CHECK(2 * sent(half, Purpose::gradient) == sent(full, Purpose::gradient));
  CHECK(sent(half, Purpose::parameter) == sent(full, Purpose::parameter));
  CHECK(off_the_prediction(spec, half) == "");
  CHECK_FALSE(half.same_bits(full));
}

TEST_CASE("a power of two as loss scale changes no bit while nothing leaves the range of the type",
          "[stages]") {
  StageRunSpec spec{.stage = StageKind::zero2, .ranks = 3, .micro_batches = 2};
  spec.options.precision = Dtype::bf16;  // whose exponents are those of fp32
  const StageRun plain = run_stage(spec);
  for (const double scale : {2.0, 256.0, 65536.0}) {
    spec.scale = scale;
    const StageRun scaled = run_stage(spec);
    CHECK(scaled.master == plain.master);
    CHECK(scaled.norms == plain.norms);
  }
  spec.scale = 3;  // rounds differently
  CHECK_FALSE(run_stage(spec).master == plain.master);
}

TEST_CASE(
    "the norm of a step is divided by the loss scale of that step, also where the scale changes",
    "[stages]") {
  const StageKind stage = any_stage();
  const auto norms_and_scale = [stage](LossScaleConfig loss_scale) {
    std::vector<double> values;
    on_three_ranks({.stage = stage, .precision = Dtype::f16, .loss_scale = loss_scale},
                   [&](EngineRun& run) {
                     for (int step = 1; step <= 4; ++step) {
                       run.backward();
                       const double norm = run.engine.step()->grad_norm;
                       if (run.comm.rank() == 0) values.push_back(norm);
                     }
                     if (run.comm.rank() == 0) values.push_back(run.engine.loss_scale());
                   });
    return values;
  };
  const auto still = norms_and_scale({.static_scale = 256}),
             doubled = norms_and_scale({.initial_scale_power = 8, .window = 1});
  CHECK(still[4] == 256);
  CHECK(doubled[4] > 256);
  // The scale changes the rounding of numbers below 2^-14 only.
  for (size_t step = 0; step < 4; ++step) CHECK(std::abs(doubled[step] / still[step] - 1) < 0.01);
}
