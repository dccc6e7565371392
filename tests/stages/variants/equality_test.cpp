// The variants of stage 3 that lose nothing: which bits they share with zero3 and ddp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/train/weights.h"
#include "stages/variants/groups.h"
#include "tests/stages/variants/gradient_sums.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec with(StageRunSpec spec, StageKind stage, int ranks_per_node = 0, int replicas = 0) {
  spec.stage = stage;
  spec.options.ranks_per_node = ranks_per_node;
  spec.options.replicas = replicas;
  return spec;
}

OddModelOptions everything() { return {.block_twice = true, .unused_parameter = true}; }

// Whole numbers: every sum is exact, and only one division rounds.
double whole_number(int rank, int a, int64_t element) {
  return double((element * 7 + rank * 13 + a * 5) % 61 - 30);
}

}  // namespace

TEST_CASE("zero3_hpz has the bits of zero3, whatever the size of a node", "[stages]") {
  struct Case {
    int ranks, ranks_per_node;
  };
  const Case c = GENERATE(Case{4, 2}, Case{6, 3}, Case{6, 2}, Case{3, 1}, Case{3, 3}, Case{2, 2});
  const int micro_batches = GENERATE(1, 3);
  CAPTURE(c.ranks, c.ranks_per_node, micro_batches);
  StageRunSpec spec{.ranks = c.ranks, .micro_batches = micro_batches, .model = everything()};
  spec.model.unused_unit = true;
  const StageRun zero3 = run_stage(with(spec, StageKind::zero3));
  CHECK(run_stage(with(spec, StageKind("zero3_hpz"), c.ranks_per_node)).same_bits(zero3));
  spec.data_seed = 8;  // the twin
  CHECK_FALSE(run_stage(with(spec, StageKind("zero3_hpz"), c.ranks_per_node)).same_bits(zero3));
}

TEST_CASE("zero3_hpz has the bits of zero3 in every precision and with every other setting",
          "[stages]") {
  const int setting = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  CAPTURE(setting);
  StageRunSpec spec{.ranks = 4, .micro_batches = 2, .model = {.blocks = 4}};
  if (setting == 0) spec.options.precision = Dtype::bf16;
  if (setting == 1) spec.options.precision = Dtype::f16, spec.scale = 128;
  if (setting == 2) spec.options.reproducible = true;
  if (setting == 3) spec.offload = true;
  if (setting == 4) spec.model.recompute = Recompute::full;
  if (setting == 5) spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 500};
  if (setting == 6) spec.options.overlap = {.max_reuse_distance = 2000};
  if (setting == 7) spec.options.reduce_bucket_size = 1'000'000;
  CHECK(run_stage(with(spec, StageKind("zero3_hpz"), 2))
            .same_bits(run_stage(with(spec, StageKind::zero3))));
}

TEST_CASE("weights that are loaded between steps reach the backward pass of zero3_hpz (DS #7606)",
          "[stages]") {
  const auto run = [](StageKind stage, bool loads) {
    StageRunSpec spec = with({.ranks = 4, .steps = 3}, stage);
    spec.after_step = [loads](Stage& stage, OddModel&, Communicator&, Memory&) {
      for (UnitState& u : stage.units()) {  // a pass without an update, such as an evaluation
        unshard(stage, u);
        reshard(stage, u);
      }
      if (!loads) return;
      load_weights(stage, [](const Parameter& p) {
        std::vector<float> values(size_t(p.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * float(i % 17) - 0.05f;
        return values;
      });
    };
    return run_stage(spec);
  };
  CHECK(run(StageKind("zero3_hpz"), true).same_bits(run(StageKind::zero3, true)));
  CHECK(run(StageKind("zero3_hpz"), false).same_bits(run(StageKind::zero3, false)));
  CHECK_FALSE(run(StageKind("zero3_hpz"), true).same_bits(run(StageKind::zero3, false)));
}

TEST_CASE("hsdp with one replica has the bits of zero3, with one micro-batch per step",
          "[stages]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const StageRunSpec spec{.ranks = ranks, .model = everything()};
  const StageRun zero3 = run_stage(with(spec, StageKind::zero3));
  CHECK(run_stage(with(spec, StageKind("hsdp"), 0, 1)).same_bits(zero3));
  if (ranks == 4) CHECK_FALSE(run_stage(with(spec, StageKind("hsdp"), 0, 2)).same_bits(zero3));
}

TEST_CASE("hsdp with a replica per rank has the losses and weights of ddp, with one micro-batch",
          "[stages]") {
  StageRunSpec spec{.ranks = 3, .model = everything(), .max_norm = 0};
  const StageRun hsdp = run_stage(with(spec, StageKind("hsdp"), 0, 3)),
                 ddp = run_stage(with(spec, StageKind::ddp));  // it adds the norm shard by shard
  CHECK(hsdp.losses == ddp.losses);
  CHECK(hsdp.weights == ddp.weights);
  spec.data_seed = 8;  // the twin
  CHECK(run_stage(with(spec, StageKind::ddp)).weights != hsdp.weights);
}

TEST_CASE("hsdp has ddp's bits where sums are exact, for every division into replicas",
          "[stages]") {
  struct Case {
    int ranks, replicas;
  };
  const Case c = GENERATE(Case{4, 2}, Case{6, 2}, Case{6, 3}, Case{3, 3}, Case{3, 1}, Case{8, 4});
  const int micro_batches = GENERATE(1, 3);
  CAPTURE(c.ranks, c.replicas, micro_batches);
  GradientSums sums{.stage = StageKind::ddp,
                    .ranks = c.ranks,
                    .micro_batches = micro_batches,
                    .gradient = whole_number};
  const auto ddp = reduced(sums);
  sums.stage = StageKind("hsdp");
  sums.options.replicas = c.replicas;
  const auto hsdp = reduced(sums);
  REQUIRE(hsdp.size() == ddp.size());
  for (size_t u = 0; u < hsdp.size(); ++u)
    for (size_t i = 0; i < hsdp[u].size(); ++i) {
      double sum = 0;
      for (int r = 0; r < c.ranks; ++r)
        for (int a = 0; a < micro_batches; ++a) sum += whole_number(r, a, int64_t(i));
      if (hsdp[u][i] != float(sum) / float(c.ranks)) FAIL_CHECK("unit " << u << ", element " << i);
    }
  CHECK(hsdp == ddp);
}

TEST_CASE(
    "hsdp trains with norms, losses and weights near ddp's, and its norm counts each shard once",
    "[stages]") {
  const int micro_batches = GENERATE(1, 3);
  StageRunSpec spec{.ranks = 4, .micro_batches = micro_batches, .model = everything()};
  spec.max_norm = 0.01;  // clipping makes the norm matter
  const StageRun ddp = run_stage(with(spec, StageKind::ddp)),
                 hsdp = run_stage(with(spec, StageKind("hsdp")));
  for (size_t i = 0; i < ddp.norms.size(); ++i) {
    CHECK(std::abs(hsdp.norms[i] - ddp.norms[i]) < 1e-5 * ddp.norms[i]);  // not sqrt(2) of it
    CHECK(std::abs(hsdp.losses[i] - ddp.losses[i]) < 1e-5 * ddp.losses[i]);
  }
  CHECK(hsdp.logs[0].rows().at({Collective::all_gather, Purpose::norm, "intra"}).ranks == 2);
}

TEST_CASE("hsdp with an offloaded optimizer has the bits of hsdp without", "[stages]") {
  StageRunSpec spec = with({.ranks = 4, .micro_batches = 2}, StageKind("hsdp"));
  const StageRun stays = run_stage(spec);
  spec.offload = true;
  CHECK(run_stage(spec).same_bits(stays));
  spec.data_seed = 8;  // the twin
  CHECK_FALSE(run_stage(spec).same_bits(stays));
}

TEST_CASE("a unit that the last micro-batch leaves out is added across replicas too", "[stages]") {
  const auto run = [](StageKind stage) {
    StageRunSpec spec = with({.ranks = 4, .micro_batches = 2, .steps = 2}, stage);
    spec.at_start = [](Stage&, OddModel& model, Communicator&, Memory&) { model.shallow = false; };
    spec.after_backward = [](Stage&, OddModel& model, Communicator&, Memory&) {
      model.shallow = !model.shallow;
    };
    return run_stage(spec);
  };
  const StageRun ddp = run(StageKind::ddp), hsdp = run(StageKind("hsdp"));
  for (size_t i = 0; i < ddp.weights.size(); ++i)
    if (!(std::abs(hsdp.weights[i] - ddp.weights[i]) < 1e-4)) FAIL_CHECK("weight " << i);
  CHECK(std::abs(hsdp.norms[1] - ddp.norms[1]) < 1e-4 * ddp.norms[1]);
}

TEST_CASE("a shard without elements goes through every variant (DS #5652)", "[stages]") {
  const StageKind stage = GENERATE(StageKind("hsdp"), StageKind("zero3_hpz"),
                                   StageKind("zero3_qwz"), StageKind("zero3_qgz"));
  CAPTURE(name(stage));
  std::string problem;
  run_ranks(4, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    OddModel model({.blocks = 1});
    model.units().push_back({.name = "empty", .parameters = {}, .index = 2});
    const auto made = make_stage(model.units(), comm, memory, {.stage = stage});
    UnitState& u = made->units()[2];
    unshard(*made, u);
    reshard(*made, u);
    made->before_backward(u);
    made->reduce_gradient(u).wait();
    made->after_reduce(u);
    made->reduce_across(u).wait();
    if (u.partition.full() != 0) problem = "the unit is not empty";
  });
  CHECK(problem.empty());
}
