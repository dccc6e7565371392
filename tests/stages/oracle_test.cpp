// The four stage files against the one-class implementation, and stages that forget something
// against both.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/placed.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

MakeStage one_class(StageKind stage) {
  const MakeStage make[] = {PlacedDdp::make_started, PlacedZero1::make_started,
                            PlacedZero2::make_started, PlacedZero3::make_started};
  return make[size_t(stage)];
}

// zero1 whose ranks keep their updates to themselves.
class WithoutShare final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "zero1 without the all-gather"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make(MemoryUse::gradient, m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.shard());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }
  Work reduce(Unit& u) override {
    return comm().reduce_scatter(memory(u).gradient, Reduction::mean,
                                 {"gradient", Purpose::gradient});
  }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }
  void update(Unit& u, double lr, float scale) override {
    memory(u).optimizer->update(own(memory(u).parameter), own(memory(u).gradient), lr, scale);
  }
};

// ddp whose ranks do not talk about gradients.
class WithoutReduce final : public Stage {
 public:
  using Stage::Stage;
  const char* name() const override { return "ddp without the all-reduce"; }

 protected:
  void place(Unit& u) override {
    UnitMemory& m = memory(u);
    m.parameter = make(MemoryUse::parameter, m.layout.full());
    m.gradient = make(MemoryUse::gradient, m.layout.full());
    m.optimizer = make_optimizer(u, m.layout.full());
    initialize(u);
    point_data(u, m.parameter);
    point_grad(u, m.gradient);
  }
  Work reduce(Unit&) override { return {}; }
  Tensor reduced_gradient(Unit& u) override { return own(memory(u).gradient); }
  void update(Unit& u, double lr, float scale) override {
    memory(u).optimizer->update(memory(u).parameter, memory(u).gradient, lr, scale);
  }
};

template <class S>
std::unique_ptr<Stage> started(std::vector<Unit>& units, Communicator& comm, Memory& memory,
                               const StageOptions& options) {
  auto stage = std::make_unique<S>(units, comm, memory, options);
  stage->start();
  return stage;
}

}  // namespace

TEST_CASE("each stage file has the bits and the ledger of the one-class implementation",
          "[stages]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const int ranks = GENERATE(1, 2, 3, 4);
  const int micro_batches = GENERATE(1, 3);
  const bool recompute = GENERATE(false, true);
  CAPTURE(name(stage), ranks, micro_batches, recompute);
  StageRunSpec spec{
      .stage = stage,
      .ranks = ranks,
      .micro_batches = micro_batches,
      .steps = 3,
      .model = {.block_twice = true, .unused_parameter = true, .recompute = recompute}};
  const StageRun file = run_stage(spec);
  spec.make = one_class(stage);
  const StageRun oracle = run_stage(spec);
  CHECK(file.same_bits(oracle));
  for (int i = 0; i < kMemoryUses; ++i) {
    CHECK(file.ledgers[0].live(MemoryUse(i)) == oracle.ledgers[0].live(MemoryUse(i)));
    CHECK(file.ledgers[0].peak(MemoryUse(i)) == oracle.ledgers[0].peak(MemoryUse(i)));
  }
}

TEST_CASE("a stage that forgets a communication is noticed by the comparison of bits", "[stages]") {
  StageRunSpec spec{.ranks = 2};
  const StageRun ddp = run_stage(spec);
  spec.make = started<WithoutShare>;
  CHECK_FALSE(run_stage(spec).same_bits(ddp));
  spec.make = started<WithoutReduce>;
  CHECK_FALSE(run_stage(spec).same_bits(ddp));
  spec.ranks = 1;  // alone, there is nothing to forget
  const StageRun alone = run_stage(spec);
  spec.make = nullptr;
  CHECK(run_stage(spec).same_bits(alone));
}
