// The optimizer on the host: the same bits, other bytes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec sharded(StageKind stage, Dtype dtype) {
  StageRunSpec spec{.stage = stage, .ranks = 3, .micro_batches = 2, .model = {.blocks = 3}};
  spec.options.dtype = dtype;
  return spec;
}

}  // namespace

TEST_CASE("offloading the optimizer changes no bit", "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const bool separate_master = GENERATE(false, true), wide = GENERATE(false, true);
  const OptimizerKind kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  StageRunSpec spec = sharded(stage, dtype);
  spec.model = {.block_twice = true, .unused_parameter = true};
  spec.options.optimizer.separate_master = separate_master;
  spec.options.optimizer.kind = kind;
  if (wide) spec.options.gradient_dtype = Dtype::f32;
  const StageRun stays = run_stage(spec);
  spec.offload = true;
  const StageRun offloaded = run_stage(spec);
  CAPTURE(name(stage), name(dtype), separate_master, wide);
  CHECK(offloaded.same_bits(stays));
  CHECK(offloaded.host_ledgers[0].peak_total() > 0);
  CHECK(stays.host_ledgers[0].peak_total() == 0);
}

TEST_CASE("offloaded state is 0 bytes of the device and all of it on the host, as predicted",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int ranks = GENERATE(1, 3);
  StageRunSpec spec = sharded(stage, dtype);
  spec.ranks = ranks;
  const StageRun stays = run_stage(spec);
  spec.offload = true;
  const StageRun run = run_stage(spec);
  CAPTURE(name(stage), name(dtype), ranks);
  CHECK(off_the_prediction(spec, run) == "");
  const MemoryLedger &device = run.ledgers[0], &host = run.host_ledgers[0];
  CHECK(device.live(MemoryUse::optimizer_state) == 0);
  CHECK(device.live(MemoryUse::master_weights) == 0);
  CHECK(host.live(MemoryUse::optimizer_state) == stays.ledgers[0].live(MemoryUse::optimizer_state));
  CHECK(host.live(MemoryUse::master_weights) == stays.ledgers[0].live(MemoryUse::master_weights));
  const bool takes_gradient =
      stage != StageKind::zero1;  // zero1's is whole and stays where backward fills it
  CHECK((host.live(MemoryUse::gradient) > 0) == takes_gradient);
  CHECK((device.live(MemoryUse::gradient) > 0) != takes_gradient);
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
}

TEST_CASE("a step that is skipped has the peaks of one that is made", "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  StageRunSpec spec = sharded(stage, Dtype::bf16);
  spec.offload = true;
  spec.steps = 1;
  const StageRun made = run_stage(spec);
  spec.after_backward = [](Stage& s, OddModel& model, Communicator&, Memory&) {
    kernel::fill(std::numeric_limits<double>::infinity(), kept_gradient(s.state(model.units()[1])));
  };
  const StageRun skipped = run_stage(spec);
  CHECK(skipped.skipped == std::vector<bool>{true});
  for (int i = 0; i < kMemoryUses; ++i) {
    CHECK(skipped.host_ledgers[1].peak(MemoryUse(i)) == made.host_ledgers[1].peak(MemoryUse(i)));
    CHECK(skipped.ledgers[1].peak(MemoryUse(i)) == made.ledgers[1].peak(MemoryUse(i)));
  }
  CHECK(skipped.host_ledgers[1].peak_total() == made.host_ledgers[1].peak_total());
}
