// Selective activation recomputation under every stage: the same bits, and exactly as many bytes
// less as the outputs that are not kept have.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

// Two rows of five tokens. Blocks of 101, 103 and 105 hidden channels run in the order 0, 1, 2, 0,
// and each pass keeps its GELU's input but not its output. The peak is in the backward pass of the
// last one, when the norm's output is gone in both runs.
TEST_CASE("selective recomputation changes no bit, and frees the outputs of GELU to the byte",
          "[stages]") {
  const StageKind stage = any_stage();
  const Dtype type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  const bool tied = GENERATE(true, false);
  CAPTURE(name(stage), name(type), tied);
  StageRunSpec spec{
      .stage = stage,
      .ranks = 3,
      .micro_batches = 2,
      .steps = 3,
      .model = {
          .hidden = 101, .blocks = 3, .tied = tied, .block_twice = true, .unused_parameter = true}};
  spec.options.dtype = type;
  spec.scale = type == Dtype::f16 ? 256 : 1;
  const StageRun kept = run_stage(spec);
  spec.model.recompute = Recompute::selective;
  const StageRun again = run_stage(spec);
  CHECK(again.same_bits(kept));
  for (size_t rank = 0; rank < 3; ++rank) {
    const MemoryLedger &a = again.ledgers[rank], &k = kept.ledgers[rank];
    CHECK(k.peak(MemoryUse::activation) - a.peak(MemoryUse::activation) ==
          2 * 5 * (101 + 103 + 105 + 101) * size_of(type));
    for (const MemoryUse use : {MemoryUse::parameter, MemoryUse::gradient,
                                MemoryUse::optimizer_state, MemoryUse::communication}) {
      CAPTURE(name(use));
      CHECK(a.peak(use) == k.peak(use));
      CHECK(a.live(use) == k.live(use));
    }
    CHECK(again.live_at_end[rank] == 0);
  }
  spec.data_seed += 1;
  CHECK_FALSE(run_stage(spec).same_bits(kept));
}

// A norm whose output another unit multiplies: its parameters are sharded when backward needs them.
TEST_CASE("an output that another unit would recompute is refused in every stage", "[stages]") {
  class Misplaced final : public Model {
   public:
    Misplaced() {
      for (const char* name : {"root", "norm", "matrix"})
        units_.push_back({.name = name, .parameters = {}, .index = int(units_.size())});
      for (const auto& [unit, name, shape] :
           {std::tuple<size_t, const char*, Shape>{0, "wte", {11, 7}},
            {1, "gain", {7}},
            {1, "shift", {7}},
            {2, "w", {7, 7}}}) {
        parameters_.push_back({.name = name, .shape = shape, .initial_deviation = 0.3});
        parameters_.back().usable = false;
        units_[unit].parameters.push_back(&parameters_.back());
      }
    }
    std::string name() const override { return "misplaced"; }
    std::vector<Unit>& units() override { return units_; }
    Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
      const auto p = [&](size_t i) { return Var::parameter(tape, parameters_[i]); };
      return run_unit(tape, observer, units_[0], [&] {
        const Var x = embedding(batch.inputs, p(0));
        const Var y = run_unit(tape, observer, units_[1],
                               [&] { return layer_norm(x, p(1), p(2), Output::recomputed); });
        const Var z = run_unit(tape, observer, units_[2], [&] { return matmul(y, p(3)); });
        return cross_entropy(project(z, p(0)), batch.targets);
      });
    }

   private:
    std::deque<Parameter> parameters_;
    std::vector<Unit> units_;
  };
  const StageRunSpec odd{.stage = GENERATE(StageKind::ddp, StageKind::zero3), .ranks = 2};
  const auto data = odd_data(odd);
  TrainingSpec spec = training_spec(odd, *data);
  spec.make_model = [] { return std::make_unique<Misplaced>(); };
  try {
    run_training(spec);
    FAIL("it ran");
  } catch (const std::exception& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.find("' is used outside its unit") != std::string::npos);
  }
}
