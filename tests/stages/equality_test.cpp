// E1 and E2 of the design: what the four stages share, bit for bit.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec with(StageRunSpec spec, StageKind stage) {
  spec.stage = stage;
  return spec;
}

void check_all_equal_ddp(const StageRunSpec& spec) {
  const StageRun ddp = run_stage(with(spec, StageKind::ddp));
  for (const double loss : ddp.losses) REQUIRE(loss == loss);  // poisoned memory was not read
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    CAPTURE(name(stage));
    CHECK(run_stage(with(spec, stage)).same_bits(ddp));
  }
}

OddModelOptions everything() { return {.block_twice = true, .unused_parameter = true}; }

}  // namespace

TEST_CASE("with one micro-batch per step all four stages have the same bits", "[stages]") {
  const int ranks = GENERATE(1, 2, 3, 4, 5);
  const bool tied = GENERATE(true, false);
  CAPTURE(ranks, tied);
  check_all_equal_ddp({.ranks = ranks, .model = {.tied = tied}});
}

TEST_CASE("a unit that runs twice and parameters that are not used change nothing about equality",
          "[stages]") {
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  check_all_equal_ddp({.ranks = ranks, .model = everything()});
  OddModelOptions idle = everything();
  idle.unused_unit = true;
  check_all_equal_ddp({.ranks = ranks, .model = idle});
}

TEST_CASE("clipping on, off and far off keeps the stages equal", "[stages]") {
  const double max_norm = GENERATE(0.0, 0.01, 1e9);
  CAPTURE(max_norm);
  check_all_equal_ddp({.ranks = 3, .model = everything(), .max_norm = max_norm});
}

TEST_CASE(
    "decay groups that alternate in a unit keep the stages equal, and matter (FS #483, DS "
    "#7906, MG #4705)",
    "[stages]") {
  StageRunSpec spec{.ranks = 3, .model = everything()};
  spec.options.optimizer.weight_decay = 0.3;
  const StageRun all_decay = run_stage(spec);
  const std::vector<std::vector<std::string>> exemptions = {{"*bias"}, {"*bias", "wte"}};
  for (const auto& exempt : exemptions) {
    spec.options.optimizer.no_weight_decay = exempt;
    check_all_equal_ddp(spec);
    CHECK_FALSE(run_stage(spec).same_bits(all_decay));
  }
}

TEST_CASE("the size of buckets never changes a bit", "[stages]") {
  OddModel model(everything());
  const Partition block(model.units()[1], 3);
  const int64_t p = block.full();
  const StageRun one_unit =
      run_stage({.stage = StageKind::zero2, .ranks = 3, .model = everything()});
  for (const int64_t bucket : {int64_t(1), p - 1, p, p + 1, int64_t(1) << 40}) {
    CAPTURE(bucket);
    StageRunSpec spec{.ranks = 3, .model = everything()};
    spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = bucket;
    for (const StageKind stage : kStages) CHECK(run_stage(with(spec, stage)).same_bits(one_unit));
  }
}

TEST_CASE("a separate master copy in fp32 changes no bit", "[stages]") {
  StageRunSpec spec{.ranks = 3, .model = everything()};
  const StageRun without = run_stage(spec);
  spec.options.optimizer.separate_master = true;
  for (const StageKind stage : kStages) CHECK(run_stage(with(spec, stage)).same_bits(without));
}

TEST_CASE("with three micro-batches ddp equals zero1 and zero2 equals zero3, and the pairs differ",
          "[stages]") {
  const int ranks = GENERATE(2, 3);
  const StageRunSpec spec{.ranks = ranks, .micro_batches = 3, .steps = 6, .model = everything()};
  const StageRun ddp = run_stage(with(spec, StageKind::ddp)),
                 zero2 = run_stage(with(spec, StageKind::zero2));
  CHECK(run_stage(with(spec, StageKind::zero1)).same_bits(ddp));
  CHECK(run_stage(with(spec, StageKind::zero3)).same_bits(zero2));
  CHECK_FALSE(zero2.same_bits(
      ddp));  // they add in another order; if this ever fails, the documents are wrong
}

TEST_CASE("other data, other seeds and another number of ranks are noticed", "[stages]") {
  const StageRunSpec spec{.ranks = 2};
  const StageRun run = run_stage(spec);
  CHECK(run_stage(spec).same_bits(run));
  StageRunSpec other = spec;
  other.data_seed = 8;
  CHECK_FALSE(run_stage(other).same_bits(run));
  other = spec;
  other.options.seed = 1;
  CHECK_FALSE(run_stage(other).same_bits(run));
  other = spec;
  other.ranks = 3;
  CHECK_FALSE(run_stage(other).same_bits(run));
}

TEST_CASE("the difference of two runs names the value, its unit, both numbers and their ratio",
          "[stages]") {
  const StageRunSpec spec{.ranks = 2, .steps = 1};
  const StageRun run = run_stage(spec);
  StageRun other = run;
  CHECK(other.difference(run).empty());
  other.weights[12 * 7] = 3;  // after 11 rows of the embedding and the weight of the norm
  const std::string difference = other.difference(run);
  CAPTURE(difference);
  CHECK(difference.starts_with("weight norm.bias of unit root, element 0 is "));
  CHECK(difference.find(" is 3, not ") != std::string::npos);
  CHECK(difference.find("; 1 of ") != std::string::npos);
  other.norms[0] = 1;
  CHECK(other.difference(run).starts_with("norm of step 1 is 1, not "));
}
