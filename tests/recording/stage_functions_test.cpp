// The functions of the stage file that recorded events name, against those that run.

#include <catch2/catch_test_macros.hpp>

#include "tests/recording/recorded_run.h"

namespace zl::test {
namespace {

struct Case {
  const char* name;
  StageRunSpec spec;
};

std::vector<Case> cases() {
  std::vector<Case> all{{"one micro-batch", {}}};
  const auto add = [&](const char* name) -> StageRunSpec& {
    all.push_back({name, {}});
    return all.back().spec;
  };
  add("three micro-batches").micro_batches = 3;
  StageRunSpec& buckets = add("buckets");
  buckets.micro_batches = 2;
  buckets.options.reduce_bucket_size = buckets.options.allgather_bucket_size = 400;
  StageRunSpec& overlap = add("overlap and prefetch");
  overlap.micro_batches = 2;
  overlap.rank_options.lane = true;
  overlap.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 600};
  StageRunSpec& reuse = add("overlap, buckets and reuse");
  reuse.model.blocks = 4;
  reuse.rank_options.lane = true;
  reuse.options.reduce_bucket_size = 700;
  reuse.options.overlap = {.overlap_comm = true, .max_reuse_distance = 1'000};
  add("prefetch without a lane").options.overlap.prefetch_bucket_size = 600;
  StageRunSpec& reproducible = add("reproducible sums");
  reproducible.micro_batches = 2;
  reproducible.options.reproducible = true;
  add("a block that runs twice").model.block_twice = true;
  add("recomputation").model.recompute = Recompute::full;
  add("selective recomputation").model.recompute = Recompute::selective;
  add("one rank").ranks = 1;
  return all;
}

}  // namespace

TEST_CASE("recorded events name exactly the functions of the stage file that run", "[recording]") {
  for (auto& [name, spec] : cases())
    for (const StageKind stage : kStages) {
      spec.stage = stage;
      spec.steps = 2;
      const RecordedRun run = record(spec);
      INFO(zl::name(stage) << ", " << name);
      REQUIRE(run.step.shown.size() == size_t(spec.ranks));
      for (size_t rank = 0; rank < run.step.shown.size(); ++rank) {
        REQUIRE_FALSE(run.calls[rank].empty());
        CHECK(by_unit(named_calls(run.step.shown[rank])) == by_unit(run.calls[rank]));
      }
    }
}

TEST_CASE("the table of another stage names other functions than those that run", "[recording]") {
  for (const StageKind stage : kStages)
    for (const StageKind other : kStages) {
      // zero1's has one more function, which is named where ddp makes no call.
      if (stage == other || (stage == StageKind::ddp && other == StageKind::zero1)) continue;
      StageRunSpec spec;
      spec.stage = stage;
      spec.steps = 2;
      const RecordedRun run = record(spec, other);
      INFO(zl::name(stage) << " recorded as " << zl::name(other));
      CHECK(by_unit(named_calls(run.step.shown[0])) != by_unit(run.calls[0]));
    }
}

TEST_CASE("a skipped step names no update", "[recording]") {
  StageRunSpec spec;
  spec.stage = StageKind::zero2;
  spec.steps = 2;
  spec.lr = 1e30;  // the second step's gradient is not finite
  spec.max_norm = 0;
  spec.options.check_grad_overflow = true;
  const RecordedRun run = record(spec);
  REQUIRE(run.result.steps.back().skipped);
  CHECK(by_unit(named_calls(run.step.shown[0])) == by_unit(run.calls[0]));
}

}  // namespace zl::test
