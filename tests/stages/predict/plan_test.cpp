// What plan says that overlap, prefetch, reuse and reproducible sums cost.
#include "stages/predict/plan.h"

#include <catch2/catch_test_macros.hpp>

#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

constexpr int64_t kRoot = 9'280, kBlock = 12'704;  // [n] of tiny on 2 ranks, two blocks

GptTrainingSpec tiny() {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  spec.ranks = 2;
  return spec;
}

}  // namespace

TEST_CASE("plan tells what overlap, prefetch and reuse cost, and nothing without them",
          "[stages]") {
  GptTrainingSpec spec = tiny();
  for (const StageKind stage : kStages) CHECK_FALSE(plan_stage(spec, stage, 0).overlap);
  spec.engine.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1, .max_reuse_distance = 1};
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    const StagePlan plan = plan_stage(spec, stage, 1);
    REQUIRE(plan.overlap);
    CHECK_FALSE(plan.reproducible);
    const SettingCost& cost = *plan.overlap;
    CHECK((cost.rest == 0 && cost.communication == 0));
    CHECK(cost.gradient == (stage >= StageKind::zero2 ? kBlock * 4 : 0));
    CHECK(cost.parameter == (stage == StageKind::zero3 ? kBlock * 4 : 0));
    // The last block is gathered once instead of twice; half of it comes from the other rank.
    CHECK(cost.sent == (stage == StageKind::zero3 ? -kBlock / 2 * 4 : 0));
    CHECK(cost.nothing() == (stage < StageKind::zero2));
  }
}

TEST_CASE("plan tells what reproducible sums cost", "[stages]") {
  GptTrainingSpec spec = tiny();
  spec.engine.accumulation = 3;
  spec.engine.reproducible = true;
  const int64_t padded = 10'240 + 2 * 14'336, plain = kRoot + 2 * kBlock;
  for (const StageKind stage : kStages) {
    CAPTURE(name(stage));
    const StagePlan plan = plan_stage(spec, stage, 0);
    REQUIRE(plan.reproducible);
    CHECK_FALSE(plan.overlap);
    // 16 bytes per element: parameter, gradient, moments; what is sharded counts half.
    const int64_t shares[] = {4 * 4, 2 * 4 + 2 * 2, 4 + 3 * 2, 4 * 2};
    CHECK(plan.reproducible->rest == (padded - plain) * shares[int(stage)]);
    const int64_t full = (10'240 + 14'336) * 4, before = (kRoot + kBlock) * 4;
    CHECK(plan.reproducible->gradient == (stage < StageKind::zero2
                                              ? full + (padded - plain) * 4
                                              : full - before + (padded - plain) / 2 * 4));
    CHECK(plan.reproducible->communication == padded / 1024 * 8 - 2 * 8);
    // Half of what is reduced comes from the other rank; an all-reduce sends twice that. Then the
    // doubles: one per block of the norm instead of 2, and 6 losses instead of 2.
    const int64_t reduced[] = {2 * (3 * padded - plain), 3 * padded - plain, 3 * (padded - plain),
                               3 * (padded - plain)};
    const int64_t gathered[] = {0, padded - plain, padded - plain,
                                3 * (2 * (padded - plain) - (10'240 - kRoot))};
    CHECK(plan.reproducible->sent == (reduced[int(stage)] + gathered[int(stage)]) / 2 * 4 +
                                         (padded / 1024 - 2) * 8 / 2 + (6 - 2) * 8 / 2);
  }
}
