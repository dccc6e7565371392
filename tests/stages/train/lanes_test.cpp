// Which training runs have a lane per rank, and that lanes and links change no result.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

namespace {

GptTrainingSpec small_spec() {
  GptTrainingSpec spec =
      gpt_spec({.layers = 2, .heads = 2, .width = 12, .block_size = 9, .vocab = 256});
  spec.steps = 3;
  spec.ranks = 3;
  spec.engine.accumulation = 2;
  return spec;
}

struct Run {
  Bits bits;
  std::vector<CommunicationLog::Rows> rows;  // by rank
  std::vector<int64_t> peaks;                // [B] by rank
  int64_t waits = 0;                         // of rank 0, for calls in flight
  TimeSpent time;                            // of rank 0
  bool operator==(const Run& other) const {
    return bits == other.bits && rows == other.rows && peaks == other.peaks;
  }
};

Run run_of(GptTrainingSpec spec) {
  static const Windows windows = text_in_windows(9);
  spec.data = &windows;
  Run run;
  TrainingResult result;
  const auto count_waits = [&](Trainer& t) {
    if (t.comm().rank() == 0)
      t.comm().events().listen(
          [&](const Event& e) { run.waits += e.kind == EventKind::collective_wait; });
  };
  run.bits = train_bits(spec, {.at_start = count_waits}, &result);
  for (const RankReport& rank : result.ranks) {
    run.rows.push_back(rank.log.rows());
    run.peaks.push_back(rank.rest.peak_total());
  }
  run.time = result.ranks[0].log.total_time();
  return run;
}

}  // namespace

TEST_CASE("ranks have lanes where calls may be in flight on the CPU, and nowhere else",
          "[stages]") {
  GptTrainingSpec spec = small_spec();
  spec.engine.overlap.max_reuse_distance = 1;  // units that are kept need none
  spec.engine.overlap.max_live_parameters = 1'000'000;
  CHECK_FALSE(rank_options(spec).lane);
  SECTION("the caller asks for them") { spec.rank_options.lane = own_lane(); }
  SECTION("reductions are in flight") { spec.engine.overlap.overlap_comm = true; }
  SECTION("units are unsharded ahead") { spec.engine.overlap.prefetch_bucket_size = 1; }
  SECTION("the link has a bandwidth") { spec.link.bandwidth = 1e6; }
  SECTION("the link has a latency") { spec.link.latency = 1e-3; }
  CHECK(rank_options(spec).lane);
}

TEST_CASE("NCCL and GPUs have no lane, and a simulated link is refused there", "[stages]") {
  GptTrainingSpec spec = small_spec();
  const bool nccl = GENERATE(true, false);
  if (nccl) spec.transport = Transport::nccl;
  spec.device = nccl ? DeviceKind::cpu : DeviceKind::cuda;
  spec.engine.overlap.overlap_comm = true;
  CHECK_FALSE(rank_options(spec).lane);
  spec.link.latency = 1e-3;
  CHECK_THROWS_AS(rank_options(spec), InputError);
  CHECK_THROWS_WITH(rank_options(spec), ContainsSubstring(nccl ? "NCCL" : "GPUs"));
}

TEST_CASE("lanes and links change no bit, byte or call of a training run", "[stages]") {
  GptTrainingSpec spec = small_spec();
  spec.engine.stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  CAPTURE(name(spec.engine.stage));
  const Run without = run_of(spec);
  CHECK(without.waits == 0);
  CHECK(without.time.hidden() == 0);
  spec.rank_options.lane = own_lane();
  const Run with = run_of(spec);
  CHECK(with == without);
  CHECK(with.waits > 0);
  spec.link = {.bandwidth = 50e6, .latency = 20e-6};
  CHECK(run_of(spec) == without);
  spec.engine.seed += 1;  // the twin
  CHECK_FALSE(run_of(spec) == without);
}
