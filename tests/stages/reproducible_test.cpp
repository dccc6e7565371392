// E3 of the design: in reproducible mode all stages have the same bits for every number of ranks N
// and of micro-batches per step A with the same N * A.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "stages/diagnosis/plain_training.h"
#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// Its units are larger than a block of the norm, so that several ranks have a part of each.
OddModelOptions odd_options() {
  return {.hidden = 201, .blocks = 2, .block_twice = true, .unused_parameter = true};
}

StageRunSpec reproducible(StageKind stage, int ranks, int micro_batches) {
  StageRunSpec spec{.stage = stage,
                    .ranks = ranks,
                    .micro_batches = micro_batches,
                    .steps = 3,
                    .model = odd_options()};
  spec.options.reproducible = true;
  return spec;
}

// The sum of the first step's gradients, added one after another in this order.
FlatValues sum_of(std::vector<FlatValues> gradients) {
  FlatValues sum(gradients[0].size());
  for (const FlatValues& gradient : gradients)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
  return sum;
}

}  // namespace

TEST_CASE("reproducible: every stage, N and A with the same N * A have the same bits", "[stages]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  CAPTURE(name(dtype));
  const auto run = [&](StageKind stage, int ranks, int all) {
    StageRunSpec spec = reproducible(stage, ranks, all / ranks);
    spec.options.precision = dtype;
    spec.scale = dtype == Dtype::f16 ? 512 : 1;
    return run_stage(spec);
  };
  for (const int all : {6, 5}) {
    const StageRun one = run(StageKind::ddp, 1, all);
    for (const double loss : one.losses) REQUIRE(std::isfinite(loss));
    for (const int ranks : {1, 2, 3, 5, 6}) {
      if (all % ranks != 0) continue;
      for (const StageKind stage : kStages) {
        CAPTURE(all, ranks, name(stage));
        CHECK(run(stage, ranks, all).same_bits(one));
      }
    }
  }
  CHECK_FALSE(run(StageKind::ddp, 2, 4).same_bits(run(StageKind::ddp, 2, 6)));
}

TEST_CASE("without the reproducible mode the number of ranks changes bits", "[stages]") {
  StageRunSpec two = reproducible(StageKind::zero2, 2, 3),
               three = reproducible(StageKind::zero2, 3, 2);
  two.options.reproducible = three.options.reproducible = false;
  CHECK_FALSE(run_stage(two).same_bits(run_stage(three)));
}

TEST_CASE("reproducible: clipping, offload, overlap and buckets change no bit", "[stages]") {
  const double max_norm = GENERATE(0.0, 0.05);
  StageRunSpec one = reproducible(StageKind::ddp, 1, 6);
  one.max_norm = max_norm;
  const StageRun expected = run_stage(one);
  for (const StageKind stage : kStages)
    for (const int ranks : {2, 3})
      for (const bool offload : {false, true})
        for (const int64_t bucket : {1, 900}) {
          StageRunSpec spec = reproducible(stage, ranks, 6 / ranks);
          spec.max_norm = max_norm;
          spec.offload = offload;
          spec.options.reduce_bucket_size = bucket;
          spec.options.overlap = {
              .overlap_comm = true, .prefetch_bucket_size = bucket, .max_reuse_distance = bucket};
          CAPTURE(name(stage), ranks, offload, bucket);
          const StageRun run = run_stage(spec);
          CHECK(run.same_bits(expected));
          for (const int64_t live : run.live_at_end) CHECK(live == 0);
        }
}

TEST_CASE("reproducible: gradients are added one after another, as a plain loop adds them",
          "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec = reproducible(stage, 3, 2);
  spec.steps = 1;
  const auto data = odd_data(spec);
  const TrainingSpec training = training_spec(spec, *data);
  PlainTraining plain(training);
  const FlatLayout layout(plain.model().units(), spec.ranks);
  std::vector<FlatValues> gradients;  // by micro-batch, then rank
  for (const auto& of_ranks : plain.gradients_alone())
    gradients.insert(gradients.end(), of_ranks.begin(), of_ranks.end());
  const FlatValues sum = sum_of(gradients);
  std::swap(gradients[1], gradients[4]);
  const FlatValues in_other_order = sum_of(gradients);
  int checked = 0, wrong = 0, differ_in_other_order = 0;
  std::vector<int> passes(3);
  spec.after_backward = [&](Stage& s, OddModel&, Communicator& comm, Memory&) {
    if (++passes[size_t(comm.rank())] < 2 || comm.rank() != 1) return;
    for (size_t u = 0; u < s.units().size(); ++u) {
      const UnitState& state = s.units()[u];
      const FlatLayout::UnitRange& range = layout.units()[u];
      const int64_t shard = state.partition.shard();
      const std::vector<float> values = kernel::download_floats(s.gradient_shard(state));
      for (int64_t i = 0; i < shard && shard + i < range.partition.full(); ++i) {
        const size_t at = size_t(range.begin + shard + i);
        ++checked;
        wrong += values[size_t(i)] != sum[at];
        differ_in_other_order += values[size_t(i)] != in_other_order[at];
      }
    }
  };
  (void)run_stage(spec);
  CHECK(checked > 0);
  CHECK(wrong == 0);
  CHECK(differ_in_other_order > 0);
}

TEST_CASE("reproducible: memory and traffic are as the formulas say", "[stages]") {
  const StageKind stage = any_stage();
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  for (const bool offload : {false, true})
    for (const bool overlap : {false, true})
      for (const int64_t bucket : {1, 5000}) {
        StageRunSpec spec = reproducible(stage, 3, 2);
        spec.model = {.hidden = 201, .blocks = 3};
        spec.offload = offload;
        spec.options.precision = dtype;
        spec.options.reduce_bucket_size = bucket;
        spec.options.overlap.overlap_comm = overlap;
        CAPTURE(name(stage), name(dtype), offload, overlap, bucket);
        const StageRun run = run_stage(spec);
        CHECK(off_the_prediction(spec, run) == "");
        CHECK(off_the_traffic(spec, run) == "");
      }
}
