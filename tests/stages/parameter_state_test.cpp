// A unit's parameters are sharded, unsharding or unsharded, and the schedule knows which.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

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

TEST_CASE("parameter shards on the host give the bits of shards on the device", "[stages]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  StageRunSpec spec{.stage = StageKind::zero3, .ranks = 3, .micro_batches = 2};
  spec.options.dtype = dtype;
  const StageRun on_device = run_stage(spec);
  EventStream events;
  Memory host({DeviceKind::cpu}, cpu_backend(), events, {.pool = Pool::host});
  spec.ranks = 1;
  const StageRun alone = run_stage(spec);
  spec.make = [&](std::vector<Unit>& units, Communicator& comm, Memory& memory,
                  StageOptions options) {
    options.placement = {.parameter = &host, .gradient = &host, .optimizer = &host};
    return make_stage(StageKind::zero3, units, comm, memory, options);
  };
  const StageRun placed = run_stage(spec);
  CHECK(placed.same_bits(alone));
  CHECK(host.ledger().peak(MemoryUse::parameter) == alone.ledgers[0].live(MemoryUse::parameter));
  CHECK(placed.ledgers[0].live(MemoryUse::parameter) == 0);
  CHECK_FALSE(placed.same_bits(on_device));  // the twin: three ranks see other data
}
