// What the schedule refuses, which unit the events of a bucket name, and which units it unshards.
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <set>

#include "autograd/ops.h"
#include "dist/run_ranks.h"
#include "stages/schedule/step_schedule.h"
#include "tensor/kernels.h"
#include "tests/nn/scratch_folder.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// Two blocks that use one more unit inside, with activation checkpointing or without.
class SharedInside final : public Model {
 public:
  explicit SharedInside(bool checkpointed) : checkpointed_(checkpointed) {
    for (const char* name : {"root", "a", "b", "shared"}) {
      parameters_.push_back({.name = str(name, ".w"), .shape = {4, 4}, .initial_deviation = 0.3});
      biases_.push_back({.name = str(name, ".bias"), .shape = {4}});
      units_.push_back({.name = name,
                        .parameters = {&parameters_.back(), &biases_.back()},
                        .index = int(units_.size())});
    }
  }
  std::string name() const override { return "shared inside"; }
  std::vector<Unit>& units() override { return units_; }
  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
    return run_unit(tape, observer, units_[0], [&] {
      Var x = embedding(batch.inputs, Var::parameter(tape, parameters_[0]));
      for (const size_t u : {1, 2}) {
        const auto forward = [this, &observer, u](Tape* t, const Var& in) {
          const Var y = layer(t, u, in);
          return run_unit(t, observer, units_[3], [&] { return layer(t, 3, y); });
        };
        x = run_unit(tape, observer, units_[u], [&] {
          return checkpointed_ ? checkpointed(tape, observer, x, forward) : forward(tape, x);
        });
      }
      return cross_entropy(x, batch.targets);
    });
  }

 private:
  Var layer(Tape* tape, size_t unit, const Var& x) {
    return linear(x, Var::parameter(tape, parameters_[unit]), Var::parameter(tape, biases_[unit]));
  }

  bool checkpointed_;
  std::deque<Parameter> parameters_, biases_;
  std::vector<Unit> units_;
};

std::string refusal(StageKind kind, bool checkpointed) {
  std::string message;
  run_ranks(1, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    SharedInside model(checkpointed);
    const auto stage = make_stage(model.units(), comm, memory, {.stage = kind});
    StepSchedule schedule(*stage);
    const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {1, 2}, Dtype::i32);
    Tape tape;
    const Var loss = model.loss(&tape, schedule, {ids, ids});
    message = sentence_of<std::invalid_argument>([&] { schedule.backward(tape, loss, 1, true); });
  });
  return message;
}

}  // namespace

TEST_CASE(
    "a unit inside several checkpointed units is refused by name, because its passes cannot be "
    "counted",
    "[stages]") {
  const StageKind stage = any_stage();
  CHECK(refusal(stage, true).find("unit shared runs backward after its gradient was complete") ==
        0);
  CHECK(refusal(stage, false) == "");
}

TEST_CASE("what happens to a unit of a full bucket carries the unit's name", "[stages]") {
  std::set<std::string> accumulated, gathered;
  StageRunSpec spec{.stage = StageKind::zero2, .ranks = 2, .steps = 1, .model = {.blocks = 3}};
  spec.options.reduce_bucket_size = spec.options.allgather_bucket_size = 1'000'000;
  spec.at_start = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() != 0) return;
    comm.events().listen([&](const Event& e) {
      if (e.kind == EventKind::collective_begin && e.what == std::string_view("all_gather") &&
          std::string_view(e.detail).ends_with(" parameter"))
        gathered.insert(str(e.unit, ": ", e.detail));
      if (e.kind == EventKind::kernel && e.what == std::string_view("accumulate") &&
          e.phase == std::string_view("backward"))
        accumulated.insert(e.unit);
    });
  };
  run_stage(spec);
  CHECK(accumulated.contains("block0"));
  CHECK(accumulated.contains("block2"));
  CHECK(gathered == std::set<std::string>{"block0: block0 parameter", "block1: block1 parameter",
                                          "block2: block2 parameter", "root: root parameter"});
}

// ---- the states of parameters

namespace {

const char* letter(ParameterState state) {
  return state == ParameterState::sharded ? "s" : state == ParameterState::unsharded ? "u" : "?";
}

// The states of all units after each unit event of the first step, on rank 0.
std::vector<std::string> states_of(StageKind kind, OddModelOptions model) {
  std::vector<std::string> seen;
  StageRunSpec spec{.stage = kind, .ranks = 2, .steps = 1, .model = model};
  spec.at_start = [&](Stage& stage, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() != 0) return;
    comm.events().listen([&](const Event& e) {
      if (e.kind != EventKind::unit) return;
      std::string line = str(e.what, " ", e.unit, ": ");
      for (const UnitState& u : stage.units()) line += letter(u.parameters);
      seen.push_back(line);
    });
  };
  run_stage(spec);
  return seen;
}

}  // namespace

TEST_CASE(
    "zero3 unshards a unit before each pass and reshards it after; root stays unsharded from "
    "its forward to its backward",
    "[stages]") {
  const auto seen = states_of(StageKind::zero3, {.blocks = 1});
  CHECK(seen == std::vector<std::string>{"before_forward root: ss", "before_forward block0: us",
                                         "after_forward block0: uu", "after_forward root: us",
                                         "before_backward root: us", "before_backward block0: us",
                                         "reduce block0: uu", "after_backward block0: uu",
                                         "reduce root: us", "after_backward root: us",
                                         "update root: ss", "update block0: ss"});
}

TEST_CASE("stages that replicate parameters keep them unsharded", "[stages]") {
  const StageKind stage = GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2);
  for (const std::string& line : states_of(stage, {.blocks = 1}))
    CHECK(line.substr(line.size() - 2) == "uu");
}

TEST_CASE("events inside nested units carry the innermost running unit", "[stages]") {
  std::string labels;
  StageRunSpec spec{.ranks = 1, .steps = 1, .model = {.blocks = 2}};
  spec.at_start = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    comm.events().listen([&](const Event& e) {
      if (e.kind == EventKind::kernel && std::string_view(e.phase) == "forward" &&
          !labels.ends_with(str(e.unit, " ")))
        labels += str(e.unit, " ");
    });
  };
  run_stage(spec);
  CHECK(labels == "root block0 block1 root ");
}
