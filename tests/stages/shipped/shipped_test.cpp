// The presets of "zerolab": {"as": …}: the bits of their parents, and formulas that agree with what
// a run keeps and sends.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <set>

#include "stages/predict/dry_run.h"
#include "stages/predict/prediction_rows.h"
#include "stages/train/gpt_spec.h"
#include "stages/variants/variants.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr StageKind kPresets[] = {StageKind::deepspeed_1,      StageKind::deepspeed_2,
                                  StageKind::deepspeed_3,      StageKind::fsdp2,
                                  StageKind::fsdp2_no_reshard, StageKind::torch_ddp};

StageRunSpec with(StageRunSpec spec, StageKind stage) {
  spec.stage = stage;
  return spec;
}

// As shipped, but for a bucket that fits a test: fresh memory is filled with NaN here.
StageRunSpec small_bucket(int64_t bucket = 2000) {
  StageRunSpec spec{.steps = 3, .max_norm = 0};
  spec.options.reduce_bucket_size = bucket;
  spec.options.persistence_threshold = 90;
  return spec;
}

void check_norms_to_rounding(const StageRun& run, const StageRun& parents) {
  REQUIRE(run.norms.size() == parents.norms.size());
  for (size_t i = 0; i < run.norms.size(); ++i)
    CHECK(std::abs(run.norms[i] - parents.norms[i]) <= 1e-14 * parents.norms[i]);
}

// Losses, weights and master weights bit for bit; norms too, or to rounding.
void check_like_parent(const StageRunSpec& spec, StageKind preset) {
  CAPTURE(name(preset), spec.ranks, spec.micro_batches);
  StageRunSpec of_parent = with(spec, parent(preset));
  if (find_variant(preset)->bits == VariantBits::norm_order)
    of_parent.options.optimizer.separate_master = parent(preset) != StageKind::ddp;
  of_parent.options.reduce_bucket_size = 1;
  const StageRun expected = run_stage(of_parent);
  StageRun run = run_stage(with(spec, preset));
  for (const double loss : run.losses) REQUIRE(loss == loss);  // poisoned memory was not read
  check_norms_to_rounding(run, expected);
  if (find_variant(preset)->bits == VariantBits::norm_order) run.norms = expected.norms;
  CHECK(run.same_bits(expected));
}

// What a run keeps and sends beside the formulas.
void check_prediction(const StageRunSpec& spec) {
  CAPTURE(name(spec.stage), spec.ranks, spec.micro_batches, spec.options.reduce_bucket_size,
          name(spec.options.dtype));
  const StageRun run = run_stage(spec);
  CHECK(off_the_prediction(spec, run) == "");
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
  CHECK(off_the_traffic(spec, run) == "");
}

}  // namespace

TEST_CASE("a preset has the losses and weights of its parent, bit for bit, without clipping",
          "[stages]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const int micro_batches = GENERATE(1, 3);
  for (const StageKind preset : kPresets) {
    StageRunSpec spec = small_bucket();
    spec.ranks = ranks;
    spec.micro_batches = micro_batches;
    check_like_parent(spec, preset);
  }
}

TEST_CASE(
    "a preset has its parent's bits also where gradients and communication are of other types",
    "[stages]") {
  for (const StageKind preset : kPresets) {
    StageRunSpec spec = small_bucket(150);
    spec.micro_batches = 2;
    spec.options.dtype = Dtype::bf16;
    check_like_parent(spec, preset);
    spec.options.gradient_dtype = Dtype::f32;
    spec.options.communication_dtype = Dtype::bf16;
    check_like_parent(spec, preset);
  }
}

TEST_CASE("a model with units that run twice, unused ones and an own head is trained alike",
          "[stages]") {
  for (const StageKind preset : kPresets) {
    StageRunSpec spec = small_bucket(100);
    spec.model = {
        .tied = false, .block_twice = true, .unused_parameter = true, .unused_unit = true};
    spec.micro_batches = 2;
    check_like_parent(spec, preset);
    spec.model.recompute = Recompute::full;
    check_like_parent(spec, preset);
  }
}

TEST_CASE("presets that add the same gradients in another order of micro-batches differ",
          "[stages]") {
  StageRunSpec spec = small_bucket();
  spec.micro_batches = 3;
  const StageRun first = run_stage(with(spec, StageKind::deepspeed_1)),
                 second = run_stage(with(spec, StageKind::deepspeed_2)),
                 third = run_stage(with(spec, StageKind::deepspeed_3));
  CHECK_FALSE(first.same_bits(second));
  CHECK(second.losses == third.losses);
}

TEST_CASE("clipping scales a preset's gradients as its parent's, to rounding", "[stages]") {
  for (const StageKind preset : kPresets) {
    StageRunSpec spec = small_bucket();
    spec.max_norm = 0.05;
    const StageRun run = run_stage(with(spec, preset)),
                   expected = run_stage(with(spec, parent(preset)));
    REQUIRE(run.norms[0] > spec.max_norm);
    check_norms_to_rounding(run, expected);
    for (size_t i = 0; i < run.losses.size(); ++i)
      CHECK(std::abs(run.losses[i] - expected.losses[i]) < 1e-5);
  }
}

TEST_CASE("what a preset keeps and sends is predicted to the byte", "[stages]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const int micro_batches = GENERATE(1, 3);
  for (const StageKind preset : kPresets)
    for (const int64_t bucket : {100, 300, 5000}) {
      StageRunSpec spec = with(small_bucket(bucket), preset);
      spec.ranks = ranks;
      spec.micro_batches = micro_batches;
      spec.model = {.blocks = 3, .tied = bucket != 300, .unused_parameter = bucket == 5000};
      check_prediction(spec);
    }
}

TEST_CASE("predictions of presets hold in every precision and with overlap", "[stages]") {
  for (const StageKind preset : kPresets)
    for (const int64_t bucket : {100, 5000})
      for (const bool overlap : {false, true}) {
        StageRunSpec spec = with(small_bucket(bucket), preset);
        spec.ranks = 2;
        spec.options.overlap.overlap_comm = overlap;
        spec.model = {.blocks = 3};
        check_prediction(spec);
        spec.options.dtype = Dtype::bf16;
        check_prediction(spec);
        spec.options.gradient_dtype = Dtype::f32;
        check_prediction(spec);
        spec.options.communication_dtype = Dtype::bf16;
        check_prediction(spec);
      }
}

TEST_CASE("deepspeed-3 is predicted where each block is a unit that is prefetched or kept",
          "[stages]") {
  const bool overlap = GENERATE(false, true);  // DeepSpeed's default is true
  for (const int64_t prefetch : {1, 400})
    for (const int64_t reuse : {1, 300, 1'000'000}) {
      StageRunSpec spec = with(small_bucket(400), StageKind::deepspeed_3);
      spec.options.persistence_threshold = 16;
      spec.options.overlap.prefetch_bucket_size = prefetch;
      spec.options.overlap.max_reuse_distance = reuse;
      spec.options.overlap.overlap_comm = overlap;
      spec.model = {.blocks = 4};
      spec.micro_batches = 2;
      check_prediction(spec);
      check_like_parent(spec, StageKind::deepspeed_3);
    }
}

TEST_CASE("a parameter of exactly the persistence threshold stays in full, as in DeepSpeed",
          "[stages]") {
  OddModel model{OddModelOptions{}};
  const Parameter& p = *model.units()[1].parameters.front();
  const auto names = [&](int64_t threshold) {
    std::set<std::string> small;
    for (const Unit& u : group_persistent_apart(model.units(), threshold, 1'000'000).units)
      if (is_persistent(u, threshold)) small.insert(u.name);
    return small;
  };
  CHECK_FALSE(names(p.numel() - 1).contains(p.name));
  CHECK(names(p.numel()).contains(p.name));
  for (const int64_t threshold : {p.numel() - 1, p.numel(), p.numel() + 1}) {
    StageRunSpec spec = with(small_bucket(), StageKind::deepspeed_3);
    spec.options.persistence_threshold = threshold;
    check_prediction(spec);
    check_like_parent(spec, StageKind::deepspeed_3);
  }
}

TEST_CASE("a skipped step of a preset gathers no updated parameters, as predicted", "[stages]") {
  for (const StageKind preset : kPresets) {
    CAPTURE(name(preset));
    StageRunSpec spec = with(small_bucket(), preset);
    spec.at_start = [](Stage&, OddModel& model, Communicator&, Memory&) {
      model.spoiled = "block0.up";
    };
    spec.after_step = [](Stage&, OddModel& model, Communicator&, Memory&) { model.spoiled = ""; };
    const StageRun run = run_stage(spec);
    REQUIRE(run.skipped == std::vector<bool>{true, false, false});
    const auto exact = [&](int64_t skipped) {
      return std::ranges::all_of(
          traffic_rows(preset, run.logs[0], predicted(spec),
                       {.steps = spec.steps, .skipped = skipped, .nonfinite = 1}),
          &TrafficRow::exact);
    };
    CHECK(exact(1));
    const bool gathers = preset == StageKind::deepspeed_1 || preset == StageKind::deepspeed_2 ||
                         preset == StageKind::deepspeed_3;
    CHECK(exact(0) != gathers);
  }
}

TEST_CASE("another bucket is not predicted as this one", "[stages]") {
  for (const StageKind preset : {StageKind::deepspeed_1, StageKind::deepspeed_3}) {
    const StageRunSpec spec = with(small_bucket(100), preset);
    const StageRun run = run_stage(spec);
    CHECK(off_the_prediction(with(small_bucket(101), preset), run) != "");
    CHECK(off_the_traffic(with(small_bucket(100), parent(preset)), run) != "");
  }
}

TEST_CASE("without any update there is no fp32 copy of a gradient at its peak", "[stages]") {
  const StageKind preset = GENERATE(StageKind::deepspeed_1, StageKind::deepspeed_2);
  StageRunSpec spec = with(small_bucket(), preset);
  spec.ranks = 1;
  spec.options.dtype = Dtype::f16;
  spec.at_start = [](Stage&, OddModel& model, Communicator&, Memory&) {
    model.spoiled = "block0.up";
  };
  const StageRun run = run_stage(spec);
  REQUIRE(run.skipped == std::vector<bool>{true, true, true});
  const auto peak = [&](bool updates) {
    return predicted(spec, updates).device.peak_of(MemoryUse::gradient);
  };
  CHECK(run.ledgers[0].peak(MemoryUse::gradient) == peak(false));
  CHECK(peak(true) > peak(false));
}

// Buckets of deepspeed-1 and -2 that 3 does not divide: the last rank adds fewer elements.
TEST_CASE("the scratch of a preset's sums between processes is predicted for every rank",
          "[stages]") {
  for (const StageKind preset : kPresets) {
    GptTrainingSpec spec = gpt_spec({.layers = 2, .heads = 2, .width = 32, .vocab = 256});
    spec.ranks = 3;
    spec.transport = Transport::mpi;
    spec.engine.stage = preset;
    spec.engine.reduce_bucket_size = 20'000;
    std::set<int64_t> peaks;
    for (int rank = 0; rank < spec.ranks; ++rank) {
      CAPTURE(name(preset), rank);
      const RankReport dry = dry_run(spec, rank);
      peaks.insert(dry.rest.peak(MemoryUse::communication));
      CHECK(predict(spec, rank, dry, true).device.peak_of(MemoryUse::communication) ==
            dry.rest.peak(MemoryUse::communication));
    }
    if (preset == StageKind::deepspeed_1) CHECK(peaks.size() == 2);
  }
}
