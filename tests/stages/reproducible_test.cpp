// E3 of the design: in reproducible mode all stages have the same bits for every number of ranks N
// and of micro-batches per step A with the same N * A.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "stages/diagnosis/plain_training.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
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
  for (const auto& [all, numbers] :
       {std::pair{6, std::vector{2, 3, 6}}, std::pair{5, std::vector{1, 5}}}) {
    const StageRun one = run(StageKind::ddp, 1, all);
    for (const double loss : one.losses) REQUIRE(std::isfinite(loss));
    for (const int ranks : numbers)
      for (const StageKind stage : kStages) {
        CAPTURE(all, ranks, name(stage));
        CHECK(run(stage, ranks, all).same_bits(one));
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
  SettingsRow pick = any_pair({2, 4, 2, 2, 2});
  StageRunSpec spec = reproducible(StageKind::ddp, 1, 6);
  spec.max_norm = pick.next({0.0, 0.05});
  const StageRun expected = run_stage(spec);
  spec.stage = pick.next_stage();
  spec.ranks = pick.next({2, 3}), spec.micro_batches = 6 / spec.ranks;
  spec.offload = pick.next({false, true});
  const int64_t bucket = pick.next({1, 900});
  spec.options.reduce_bucket_size = bucket;
  spec.options.overlap = {
      .overlap_comm = true, .prefetch_bucket_size = bucket, .max_reuse_distance = bucket};
  CAPTURE(name(spec.stage), spec.ranks, spec.offload, bucket);
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(expected));
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
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
  SettingsRow pick = any_pair({4, 2, 2, 2, 2});
  StageRunSpec spec = reproducible(pick.next_stage(), 3, 2);
  spec.model = {.hidden = 201, .blocks = 3};
  spec.options.precision = pick.next({Dtype::f32, Dtype::bf16});
  spec.offload = pick.next({false, true});
  spec.options.overlap.overlap_comm = pick.next({false, true});
  spec.options.reduce_bucket_size = pick.next({1, 5000});
  CAPTURE(name(spec.stage), name(spec.options.precision), spec.offload,
          spec.options.overlap.overlap_comm, spec.options.reduce_bucket_size);
  const StageRun run = run_stage(spec);
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(off_the_traffic(spec, run) == "");
}
