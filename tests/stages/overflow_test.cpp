// A gradient that is not finite: all ranks skip together, and the first one to blame is named.
// Nothing reads what a rank does not own.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <limits>

#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// The gradient of `parameter` becomes infinite on one rank in micro-batch `at` of the run, counted
// from 1; 0 is the first micro-batch too, since it is set before the run.
StageRunSpec spoil(StageRunSpec spec, int rank, const std::string& parameter, int64_t at) {
  auto counts = std::make_shared<std::vector<int64_t>>(size_t(spec.ranks), 0);
  const auto set = [=](OddModel& model, Communicator& comm) {
    const bool now = ++(*counts)[size_t(comm.rank())] == at && comm.rank() == rank;
    model.spoiled = now ? parameter : "";
  };
  spec.at_start = [=](Stage&, OddModel& model, Communicator& comm, Memory&) { set(model, comm); };
  spec.after_backward = [=](Stage&, OddModel& model, Communicator& comm, Memory&) {
    set(model, comm);
  };
  return spec;
}

StageRunSpec in(StageKind stage, Dtype dtype, int micro_batches) {
  StageRunSpec spec{.stage = stage,
                    .ranks = 3,
                    .micro_batches = micro_batches,
                    .steps = 4,
                    .model = {.unused_parameter = true}};
  spec.options.precision = dtype;
  return spec;
}

}  // namespace

TEST_CASE(
    "an infinity on one rank makes all ranks skip, in every stage and whichever rank (DS "
    "#7580, PT #115710)",
    "[stages]") {
  SettingsRow pick = any_pair({4, 3, 2});
  const StageKind stage = pick.next_stage();
  const int rank = pick.next({0, 1, 2}), micro_batches = pick.next({1, 3});
  CAPTURE(name(stage), rank, micro_batches);
  const int64_t at = micro_batches + 1;  // the first micro-batch of the second step
  StageRunSpec spec = spoil(in(stage, Dtype::f32, micro_batches), rank, "block1.up", at);
  std::vector<std::vector<bool>> skipped(3);
  const StageRun run = run_stage(spec);
  CHECK(run.skipped == std::vector<bool>{false, true, false, false});
  REQUIRE(run.nonfinite[1].has_value());
  CHECK(run.nonfinite[1]->rank == rank);
  CHECK(run.nonfinite[1]->parameter == "block1.up");
  CHECK_FALSE(run.nonfinite[1]->in_sum);
  CHECK_FALSE(run.nonfinite[0].has_value());
  CHECK_FALSE(run.nonfinite[2].has_value());
}

TEST_CASE("of two overflows in a row the second names its own parameter and rank", "[stages]") {
  const StageKind stage = any_stage();
  CAPTURE(name(stage));
  StageRunSpec spec = in(stage, Dtype::f32, 1);
  spec.at_start = [](Stage&, OddModel& model, Communicator& comm, Memory&) {
    if (comm.rank() == 0) model.spoiled = "block0.up";
  };
  spec.after_step = [](Stage&, OddModel& model, Communicator& comm, Memory&) {  // of two the first
    model.spoiled = comm.rank() == 0 ? "" : comm.rank() == 1 ? "block1.down" : "block0.up";
  };
  const StageRun run = run_stage(spec);
  CHECK(run.skipped == std::vector<bool>(4, true));
  for (size_t step = 0; step < 4; ++step) {
    CAPTURE(step);
    REQUIRE(run.nonfinite[step].has_value());
    CHECK(run.nonfinite[step]->rank == (step == 0 ? 0 : 1));
    CHECK(run.nonfinite[step]->parameter == (step == 0 ? "block0.up" : "block1.down"));
  }
}

TEST_CASE("a skipped step changes neither weights nor moments, in any type (DS f0253c866)",
          "[stages]") {
  const StageKind stage = any_stage();
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  CAPTURE(name(stage), name(dtype));
  StageRunSpec clean = in(stage, dtype, 1);
  clean.steps = 1;
  const StageRun one = run_stage(clean);
  StageRunSpec spec = spoil(clean, 1, "block0.down", 2);
  spec.steps = 2;
  const StageRun skipped = run_stage(spec);
  CHECK(skipped.skipped == std::vector<bool>{false, true});
  CHECK(skipped.master == one.master);
  CHECK(skipped.weights == one.weights);
  // The moments: the third step on the same data has the bits of a second one that follows the
  // first at once.
  spec.steps = 3;
  spec.first_micro_batch = 0;
  const StageRun third = run_stage(spec);
  CHECK_FALSE(third.master == one.master);
  for (const float w : third.master) REQUIRE(std::isfinite(w));
}

TEST_CASE(
    "micro-batches that are finite but add up to infinity are told from a gradient that is not",
    "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec = in(stage, Dtype::f16, 1);
  spec.steps = 1;
  // As if earlier micro-batches had added up to this.
  spec.after_backward = [](Stage& s, OddModel& model, Communicator&, Memory&) {
    const UnitState& m = s.state(model.units()[2]);
    for (const Partition::Piece& p : m.partition.pieces(0, m.partition.full()))
      if (p.parameter->name == "block1.down" && kept_gradient(m).numel() == m.partition.full())
        kernel::fill(std::numeric_limits<double>::infinity(),
                     kept_gradient(m).slice(p.at, {p.count}));
    if (kept_gradient(m).numel() != m.partition.full())
      kernel::fill(std::numeric_limits<double>::infinity(), kept_gradient(m));
  };
  const StageRun run = run_stage(spec);
  REQUIRE(run.nonfinite[0].has_value());
  CHECK(run.nonfinite[0]->in_sum);
  CHECK(run.nonfinite[0]->parameter.starts_with("block1."));
}

TEST_CASE("without the overflow check a step is made whatever its gradient is", "[stages]") {
  StageRunSpec spec = spoil(in(StageKind::zero2, Dtype::bf16, 1), 2, "block0.up", 1);
  spec.options.check_grad_overflow = false;
  const StageRun run = run_stage(spec);
  CHECK(run.skipped == std::vector<bool>(4, false));
  CHECK(run.nonfinite[0]->rank == 2);
  bool all_finite = true;
  for (const float w : run.weights) all_finite = all_finite && std::isfinite(w);
  CHECK_FALSE(all_finite);
}

namespace {

StageRunSpec overflow_spec(StageKind stage) {
  return {.stage = stage,
          .ranks = 3,
          .micro_batches = 2,
          .steps = 3,
          .model = {.block_twice = true, .unused_parameter = true}};
}

// NaN over every slice of zero1's gradients that another rank owns.
void poison_foreign_gradients(Stage& stage, OddModel& model, Communicator& comm, bool own_too) {
  for (const Unit& u : model.units()) {
    const UnitState& m = stage.state(u);
    for (int rank = 0; rank < comm.size(); ++rank)
      if (rank != comm.rank() || own_too)
        kernel::fill(std::numeric_limits<double>::quiet_NaN(),
                     kept_gradient(m).slice(rank * m.partition.shard(), {m.partition.shard()}));
  }
}

}  // namespace

TEST_CASE("after the last reduce-scatter zero1 reads its own shard of the gradient only",
          "[stages]") {
  StageRunSpec spec = overflow_spec(StageKind::zero1);
  const StageRun clean = run_stage(spec);
  std::vector<int64_t> backwards(3, 0);
  spec.after_backward = [&](Stage& stage, OddModel& model, Communicator& comm, Memory&) {
    // Only after the last of two micro-batches: before that the whole gradient still accumulates.
    if (++backwards[size_t(comm.rank())] % 2 == 0)
      poison_foreign_gradients(stage, model, comm, false);
  };
  CHECK(run_stage(spec).same_bits(clean));
  CHECK(backwards == std::vector<int64_t>{6, 6, 6});
  spec.after_backward = [](Stage& stage, OddModel& model, Communicator& comm, Memory&) {
    poison_foreign_gradients(stage, model, comm, true);
  };
  CHECK(run_stage(spec).skipped == std::vector<bool>{true, true, true});  // the twin
}

TEST_CASE("padding stays zero in every buffer after ten steps", "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec = overflow_spec(stage);
  spec.steps = 10;
  spec.options.optimizer.weight_decay = 0.1;
  spec.after_step = [&](Stage& s, OddModel& model, Communicator& comm, Memory&) {
    for (const Unit& u : model.units()) {
      const UnitState& m = s.state(u);
      const int64_t n = kept_parameter(m).numel(),
                    begin = n == m.partition.full() ? 0 : comm.rank() * n;
      const std::vector<float> parameter = kernel::download_floats(kept_parameter(m));
      std::vector<bool> padding(size_t(n), true);
      for (const Partition::Piece& piece : m.partition.pieces(begin, n))
        for (int64_t i = 0; i < piece.count; ++i) padding[size_t(piece.at + i)] = false;
      for (int64_t i = 0; i < n; ++i)
        if (padding[size_t(i)] && parameter[size_t(i)] != 0)
          FAIL("padding of " << u.name << " at " << i << " is not zero");
    }
  };
  const StageRun run = run_stage(spec);
  CHECK(run.skipped == std::vector<bool>(10, false));
}
