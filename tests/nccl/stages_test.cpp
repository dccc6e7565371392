// The four stages through the fake have the bits of the four stages among threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "tests/nccl/stage_through_nccl.h"
#include "tests/pairwise.h"

using namespace zl;
using namespace zl::test;

namespace {

bool same_log(const StageRun& a, const StageRun& b) {
  for (size_t r = 0; r < a.logs.size(); ++r)
    if (a.logs[r].rows() != b.logs[r].rows()) return false;
  return a.logs.size() == b.logs.size();
}

}  // namespace

TEST_CASE("the four stages through NCCL have the bits and the traffic of threads", "[nccl]") {
  SettingsRow pick = any_pair({4, 4, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 2, 3, 4});
  const bool lagging = pick.next({false, true});
  if (kThreadSanitizer && ranks != 3) return;
  CAPTURE(ranks, lagging, name(stage));
  const StageRunSpec spec{.stage = stage,
                          .ranks = ranks,
                          .micro_batches = 2,
                          .model = {.block_twice = true, .unused_parameter = true}};
  const StageRun threads = run_stage(spec), nccl = through_nccl(spec, {.lagging = lagging});
  CHECK(nccl.same_bits(threads));
  CHECK(same_log(nccl, threads));
  for (const int64_t bytes : nccl.live_at_end) CHECK(bytes == 0);
}

TEST_CASE("the four stages through NCCL have the bits of threads in mixed precision", "[nccl]") {
  SettingsRow pick = any_pair({4, 2, 2});
  StageRunSpec spec{.stage = pick.next_stage()};
  spec.options.precision = pick.next({Dtype::bf16, Dtype::f16});
  spec.ranks = pick.next({2, 3});
  if (spec.options.precision == Dtype::f16) spec.scale = 1024;
  CAPTURE(name(spec.options.precision), spec.ranks, name(spec.stage));
  CHECK(through_nccl(spec, {.lagging = true}).same_bits(run_stage(spec)));
}

TEST_CASE("sums that NCCL orders itself train too, but to other bits", "[nccl]") {
  const StageRunSpec spec{.stage = StageKind::zero2, .ranks = 3};
  const StageRun threads = run_stage(spec),
                 nccl = through_nccl(spec, {.lagging = true, .ordered = false});
  CHECK_FALSE(nccl.same_bits(threads));
  for (size_t i = 0; i < threads.losses.size(); ++i)
    CHECK(std::abs(nccl.losses[i] - threads.losses[i]) < 1e-4);
}

// Units are communicated one by one or in one group.
TEST_CASE(
    "through NCCL the odd model takes what the formulas say of it, and has the bits of threads",
    "[nccl]") {
  SettingsRow pick = any_pair({4, 4, 3, 2, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 2, 3, 4});
  const int64_t bucket = pick.next({int64_t(1), int64_t(200), int64_t(1) << 40});
  const Dtype communication = pick.next({Dtype::f32, Dtype::bf16});
  if (kThreadSanitizer && ranks != 3) return;
  CAPTURE(ranks, bucket, name(communication), name(stage));
  StageRunSpec spec{.stage = stage, .ranks = ranks, .micro_batches = 2, .scratch = true};
  spec.options.precision = pick.next({Dtype::f32, Dtype::bf16});
  spec.options.reduce_bucket_size = bucket;
  spec.options.communication_data_type = communication;
  const StageRun run = through_nccl(spec, {.lagging = ranks % 2 == 1});
  CHECK(off_the_prediction(spec, run) == "");
  spec.scratch = false;
  CHECK(run.same_bits(run_stage(spec)));
  CHECK((off_the_prediction(spec, run) == "") == (ranks == 1));
}

namespace {

StageRunSpec overlapped(StageKind stage, int ranks) {
  StageRunSpec spec{
      .stage = stage, .ranks = ranks, .micro_batches = 2, .steps = 3, .model = {.blocks = 3}};
  spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
  return spec;
}

}  // namespace

TEST_CASE("overlap, prefetch and reuse through NCCL keep the bits and the bytes of the formulas",
          "[nccl]") {
  const int64_t bucket = GENERATE(1, 500);
  for (const StageKind stage : kStages) {
    CAPTURE(bucket, name(stage));
    StageRunSpec spec = overlapped(stage, 3);
    spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = bucket;
    spec.scratch = true;
    StageRunSpec plain = spec;
    plain.options.overlap = {};
    const StageRun run = through_nccl(spec, {.lagging = true});
    CHECK(run.same_bits(run_stage(plain)));
    CHECK(off_the_prediction(spec, run) == "");
    for (const int64_t bytes : run.live_at_end) CHECK(bytes == 0);
  }
}

TEST_CASE("reproducible sums through NCCL have the bits of any number of ranks among threads",
          "[nccl]") {
  const auto with_ranks = [](StageKind stage, int ranks) {
    StageRunSpec spec = overlapped(stage, ranks);
    spec.micro_batches = 6 / ranks;
    spec.model.hidden = 201;
    spec.options.reproducible = true;
    return spec;
  };
  const StageRun alone = run_stage(with_ranks(StageKind::ddp, 1));
  for (const StageKind stage : kStages)
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(name(stage), ranks);
      StageRunSpec spec = with_ranks(stage, ranks);
      spec.scratch = true;
      const StageRun run = through_nccl(spec, {.lagging = true});
      CHECK(run.same_bits(alone));
      CHECK(off_the_prediction(spec, run) == "");
    }
  CHECK_THROWS(through_nccl(with_ranks(StageKind::zero2, 2), {.ordered = false}));
}

TEST_CASE(
    "on emulated GPUs the stages, overlap and reproducible sums through NCCL have the bits of "
    "threads",
    "[nccl]") {
  require_emulator();
  enum class How { plain, overlap, reproducible };
  const auto [how, stage] =
      GENERATE(std::pair{How::plain, StageKind::ddp}, std::pair{How::plain, StageKind::zero2},
               std::pair{How::overlap, StageKind::zero1}, std::pair{How::overlap, StageKind::zero3},
               std::pair{How::reproducible, StageKind::zero2});
  CAPTURE(name(stage), int(how));
  StageRunSpec spec{.stage = stage, .ranks = 3};
  if (how != How::plain) spec = overlapped(stage, 3);
  spec.steps = 2;
  spec.options.precision = Dtype::bf16;
  spec.options.reproducible = how == How::reproducible;
  const StageRun nccl = through_nccl(spec, {.emulated = true});
  spec.options.overlap = {};
  spec.backends = [](int) { return fake_backends(Place::emulated); };
  CHECK(nccl.same_bits(run_stage(spec)));
}

namespace {

// NCCL's groups of one step on each rank.
int groups_of_a_step(StageRunSpec spec) {
  const auto groups = [&](int steps) {
    spec.steps = steps;
    const FakeUse use = with_fake({}, [&](const RunRanks& start) {
      spec.run = start;
      (void)run_stage(spec);
    });
    return use.groups / spec.ranks;
  };
  return groups(3) - groups(2);
}

}  // namespace

TEST_CASE("a step takes a few groups of NCCL for each bucket", "[nccl]") {
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    StageRunSpec spec{.stage = stage, .ranks = 2};
    const int units = int(OddModel(spec.model).units().size());
    const int one_unit = groups_of_a_step(spec);
    spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = int64_t(1) << 40;
    const int all_units = groups_of_a_step(spec);
    const int gathers = stage == StageKind::zero3 ? 2 * units - 1 : 0;  // of parameters, one by one
    const int of_sums = 2;  // losses and norms: the exchange and the all-gather
    CHECK(one_unit == (gathers > 0 ? units : 2 * units) + gathers + of_sums);
    CHECK(all_units == (gathers > 0 ? 1 : 2) + gathers + of_sums);
  }
}
