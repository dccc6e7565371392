// Nothing reads what a rank does not own.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec spec_of(StageKind stage) {
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
  StageRunSpec spec = spec_of(StageKind::zero1);
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
  StageRunSpec spec = spec_of(stage);
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
