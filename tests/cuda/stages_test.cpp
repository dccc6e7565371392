// Ranks that share one GPU under the four stages: equal bits between stages, and what only
// a GPU can get wrong.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec on_gpu(StageKind stage, Dtype dtype, int ranks) {
  StageRunSpec spec{
      .stage = stage, .ranks = ranks, .steps = 2, .model = {.unused_parameter = true}};
  spec.options.precision = dtype;
  spec.backends = on_test_gpus();
  return spec;
}

}  // namespace

TEST_CASE("on a GPU the four stages have the same bits, and the bytes of the formulas",
          "[cuda][training]") {
  struct Case {
    Dtype dtype;
    int ranks;
    bool offload;
  };
  const auto [dtype, ranks, offload] =
      GENERATE(Case{Dtype::f32, 3, false}, Case{Dtype::bf16, 4, true}, Case{Dtype::f16, 2, true});
  const StageRun ddp = run_stage(on_gpu(StageKind::ddp, dtype, ranks));
  REQUIRE(ddp.losses.size() == 2);
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    StageRunSpec spec = on_gpu(stage, dtype, ranks);
    spec.offload = offload;
    const StageRun run = run_stage(spec);
    CAPTURE(name(stage), name(dtype), ranks, offload);
    CHECK(run.same_bits(ddp));
    CHECK(off_the_prediction(spec, run) == "");
    for (const int64_t live : run.live_at_end) CHECK(live == 0);
  }
  StageRunSpec other = on_gpu(StageKind::ddp, dtype, ranks);
  other.data_seed = 8;
  CHECK_FALSE(run_stage(other).same_bits(ddp));
}

TEST_CASE("after the first step no step allocates or frees memory of the driver",
          "[cuda][training]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  StageRunSpec spec = on_gpu(stage, Dtype::bf16, 3);
  spec.backends = on_test_gpus({0}, {.segment = 1});  // so that driver calls occur
  spec.offload = stage != StageKind::ddp;
  std::atomic<int> steps{0};
  std::array<std::atomic<int64_t>, 3> first{}, last{};
  spec.steps = 4;
  spec.after_step = [&](Stage&, OddModel&, Communicator& comm, Memory& memory) {
    auto& calls = first[size_t(comm.rank())];
    if (calls == 0) calls = memory.system_calls();
    last[size_t(comm.rank())] = memory.system_calls();
    ++steps;
  };
  run_stage(spec);
  CAPTURE(name(stage));
  REQUIRE(steps == 12);
  for (size_t r = 0; r < 3; ++r) {
    CHECK(first[r] > 5);
    CHECK(last[r] == first[r]);
  }
}

TEST_CASE("a GPU's limit ends all ranks with who asked for what", "[cuda][training]") {
  StageRunSpec spec = on_gpu(StageKind::zero3, Dtype::f32, 3);
  spec.limit = 20'000;
  try {
    run_stage(spec);
    FAIL("it fitted");
  } catch (const OutOfMemory& error) {
    CHECK(error.asked > 0);
    CHECK(std::string(error.what()).find("20000 bytes") != std::string::npos);
  }
}

TEST_CASE("on a GPU overlap and reproducible sums keep bits and bytes", "[cuda][training]") {
  const auto with_ranks = [](StageKind stage, int ranks, bool reproducible) {
    StageRunSpec spec = on_gpu(stage, Dtype::bf16, ranks);
    spec.micro_batches = 6 / ranks;
    spec.model = {.hidden = 101, .blocks = 3};
    spec.options.reproducible = reproducible;
    return spec;
  };
  const StageRun alone = run_stage(with_ranks(StageKind::ddp, 1, true));
  for (const StageKind stage : {StageKind::zero1, StageKind::zero3}) {
    CAPTURE(name(stage));
    StageRunSpec spec = with_ranks(stage, 3, true);
    spec.offload = true;
    spec.options.overlap = {
        .overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
    spec.run = run_ranks;  // without lanes: a GPU has streams
    const StageRun run = run_stage(spec);
    CHECK(run.same_bits(alone));
    CHECK(off_the_prediction(spec, run) == "");
    spec.options.reproducible = false;
    CHECK(run_stage(spec).same_bits(run_stage(with_ranks(stage, 3, false))));
  }
}
