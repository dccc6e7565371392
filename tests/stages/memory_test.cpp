// What each stage keeps and needs, to the byte: ledger against closed formula. Selective activation
// recomputation: the same bits, and as many bytes less as the outputs that are not kept have.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/predict/closed_form.h"
#include "tests/nn/scratch_folder.h"
#include "tests/pairwise.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

void check_ledger(const StageRunSpec& spec) {
  const StageRun run = run_stage(spec);
  CAPTURE(name(spec.stage), spec.ranks);
  CHECK(off_the_prediction(spec, run) == "");
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
}

}  // namespace

TEST_CASE("memory at rest and at the peak is as the formulas say, for every stage and 1 to 5 ranks",
          "[stages]") {
  SettingsRow pick = any_pair({4, 5, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 2, 3, 4, 5});
  const bool separate_master = pick.next({false, true});
  StageRunSpec spec{.stage = stage, .ranks = ranks, .steps = 2, .model = {.blocks = 3}};
  spec.options.optimizer.separate_master = separate_master;
  check_ledger(spec);
}

TEST_CASE("buckets raise the peak of gradients in stages 2 and 3 exactly as predicted",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const int64_t bucket = GENERATE(1, 300, 500, 1'000'000);
  StageRunSpec spec{
      .stage = stage, .ranks = 3, .micro_batches = 2, .steps = 2, .model = {.blocks = 4}};
  spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = bucket;
  check_ledger(spec);
}

// By hand, for 2 ranks. V 11, C 7, hidden 13 and 15, tied:
//   root    wte 77 -> 80, gain 7 -> 16, bias 7 -> 16: 112, a multiple of 32 after padding: 128
//   block0  up 91 -> 96, up_bias 13 -> 16, down 91 -> 96, down_bias 7 -> 16: 224 -> 224
//   block1  up 105 -> 112, 15 -> 16, 105 -> 112, 7 -> 16: 256 -> 256
//   whole 608 elements, shard 304
TEST_CASE("one case worked out by hand", "[stages]") {
  OddModel model(OddModelOptions{});
  CHECK(padded_unit_sizes(model.units(), 2) == std::vector<int64_t>{128, 224, 256});
  const StageRun ddp = run_stage({.stage = StageKind::ddp, .ranks = 2, .steps = 1});
  CHECK(ddp.ledgers[1].live(MemoryUse::parameter) == 608 * 4);
  CHECK(ddp.ledgers[1].live(MemoryUse::gradient) == 608 * 4);
  CHECK(ddp.ledgers[1].live(MemoryUse::optimizer_state) == 608 * 8);
  const StageRun zero3 = run_stage({.stage = StageKind::zero3, .ranks = 2, .steps = 1});
  CHECK(zero3.ledgers[1].live(MemoryUse::parameter) == 304 * 4);
  CHECK(zero3.ledgers[1].live(MemoryUse::gradient) == 304 * 4);
  CHECK(zero3.ledgers[1].live(MemoryUse::optimizer_state) == 304 * 8);
  // At most root and the larger block are gathered, or have unreduced gradients, at one time.
  CHECK(zero3.ledgers[1].peak(MemoryUse::parameter) == (304 + 128 + 256) * 4);
  CHECK(zero3.ledgers[1].peak(MemoryUse::gradient) == (304 + 128 + 256) * 4);
  CHECK(zero3.ledgers[1].peak(MemoryUse::communication) == 2 * 8);
}

TEST_CASE("traffic is as the formulas say, call by call and byte by byte", "[stages]") {
  SettingsRow pick = any_pair({4, 4, 2, 2});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 2, 3, 5}), micro_batches = pick.next({1, 3});
  const int64_t bucket = pick.next({1, 1'000'000});
  CAPTURE(name(stage), ranks, micro_batches, bucket);
  StageRunSpec spec{.stage = stage,
                    .ranks = ranks,
                    .micro_batches = micro_batches,
                    .steps = 1,
                    .model = {.blocks = 3}};
  spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = bucket;
  CHECK(off_the_traffic(spec, run_stage(spec)) == "");
}

TEST_CASE("a rank sends 2, 2, 2 and 3 times (N-1)/N of the model, less root's second gather",
          "[stages]") {
  const int N = 4;
  OddModel model({.blocks = 3});
  const std::vector<int64_t> units = padded_unit_sizes(model.units(), N);
  int64_t whole = 0;
  for (const int64_t n : units) whole += n;
  const int64_t expected[] = {2 * whole, 2 * whole, 2 * whole, 3 * whole - units[0]};
  for (const StageKind stage : kStages) {
    const StageRun run =
        run_stage({.stage = stage, .ranks = N, .steps = 1, .model = {.blocks = 3}});
    int64_t sent = 0;
    for (const auto& [key, t] : run.logs[2].rows())
      if (key.purpose == Purpose::gradient || key.purpose == Purpose::parameter)
        sent += t.sent_bytes_times_n;
    CAPTURE(name(stage));
    CHECK(sent == expected[stage_number(stage)] * 4 * (N - 1));
  }
}

// Two rows of five tokens. Blocks of 101, 103 and 105 hidden channels run in the order 0, 1, 2, 0,
// and each pass keeps its GELU's input but not its output. The peak is in the backward pass of the
// last one, when the norm's output is gone in both runs.
TEST_CASE("selective recomputation changes no bit, and frees the outputs of GELU to the byte",
          "[stages]") {
  SettingsRow pick = any_pair({4, 3, 2});
  const StageKind stage = pick.next_stage();
  const Dtype type = pick.next({Dtype::f32, Dtype::bf16, Dtype::f16});
  const bool tied = pick.next({true, false});
  CAPTURE(name(stage), name(type), tied);
  StageRunSpec spec{
      .stage = stage,
      .ranks = 3,
      .micro_batches = 2,
      .steps = 3,
      .model = {
          .hidden = 101, .blocks = 3, .tied = tied, .block_twice = true, .unused_parameter = true}};
  spec.options.precision = type;
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
  const std::string text = sentence_of<std::exception>([&] { run_training(spec); });
  CAPTURE(text);
  CHECK(text.find("' is used outside its unit") != std::string::npos);
}
