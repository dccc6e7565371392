// Faults injected into a step: every rank returns, the error names what happened, and a fresh
// engine trains as before.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "tests/nn/scratch_folder.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring, Catch::Matchers::MessageMatches;

namespace {

using Clock = std::chrono::steady_clock;

struct Injected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

StageRunSpec spec_of(StageKind stage) {
  StageRunSpec spec{
      .stage = stage, .ranks = 3, .micro_batches = 2, .steps = 1, .model = {.block_twice = true}};
  spec.rank_options.timeout = std::chrono::seconds(5);
  return spec;
}

// Throws on `rank` at its n-th event of `kind`, counted from the start of the steps.
StageRunSpec with_fault(StageRunSpec spec, int rank, EventKind kind, int64_t n) {
  spec.at_start = [=](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() != rank) return;
    comm.events().listen([kind, n, seen = int64_t(0)](const Event& e) mutable {
      if (e.kind == kind && ++seen == n) throw Injected(str("injected at ", name(kind), " ", n));
    });
  };
  return spec;
}

int64_t collectives_of(StageKind stage) {
  int64_t calls = 0;
  const StageRun run = run_stage(spec_of(stage));  // the log must outlive the loop
  for (const auto& [key, t] : run.logs[0].rows()) calls += t.calls;
  return calls;
}

}  // namespace

TEST_CASE(
    "a rank that throws before, in or after any collective of a step ends all ranks with its error",
    "[stages]") {
  const StageKind stage = any_stage();
  const EventKind kind =
      GENERATE(EventKind::collective_begin, EventKind::collective_met, EventKind::collective_end);
  const StageRun healthy = run_stage(spec_of(stage));
  const int64_t calls = collectives_of(stage);
  REQUIRE(calls >= 5);
  for (int64_t n = 1; n <= calls; ++n) {
    const int rank = int(n + int(kind)) % 3;
    CAPTURE(name(stage), name(kind), rank, n);
    const auto begin = Clock::now();
    REQUIRE_THROWS_AS(run_stage(with_fault(spec_of(stage), rank, kind, n)), Injected);
    REQUIRE(Clock::now() - begin < std::chrono::seconds(6));
  }
  CHECK_THROWS_AS(run_stage(with_fault(spec_of(stage), 0, kind, calls)), Injected);
  CHECK_NOTHROW(run_stage(
      with_fault(spec_of(stage), 0, kind, calls + 1000)));  // the twin: there is no such call
  CHECK(run_stage(spec_of(stage)).same_bits(healthy));
}

TEST_CASE(
    "an allocation that fails, whichever it is, ends all ranks with OutOfMemory that names it",
    "[stages]") {
  const StageKind stage = any_stage();
  const StageRun healthy = run_stage(spec_of(stage));
  std::atomic<int64_t> before = 0, allocations = 0;  // as many on each rank
  StageRunSpec counted = spec_of(stage);
  counted.at_start = [&](Stage&, OddModel&, Communicator& comm, Memory& m) {
    if (comm.rank() == 0) before = m.allocations();
  };
  counted.after_step = [&](Stage&, OddModel&, Communicator& comm, Memory& m) {
    if (comm.rank() == 0) allocations = m.allocations() - before;
  };
  run_stage(counted);
  REQUIRE(allocations > 50);
  for (int64_t k = 1; k <= allocations; ++k) {
    StageRunSpec spec = spec_of(stage);
    const int rank = int(k % 3);
    spec.at_start = [=](Stage&, OddModel&, Communicator& comm, Memory& m) {
      if (comm.rank() == rank) m.fail_at(k);
    };
    CAPTURE(name(stage), rank, k);
    try {
      run_stage(spec);
      FAIL("the allocation did not fail");
    } catch (const OutOfMemory& e) {
      REQUIRE(e.rank == rank);
      REQUIRE(e.asked > 0);
      REQUIRE_FALSE(e.phase.empty());
    }
  }
  CHECK(run_stage(spec_of(stage)).same_bits(healthy));
}

TEST_CASE("a device that holds everything at rest but not the gather of one block says so",
          "[stages]") {
  StageRunSpec spec = spec_of(StageKind::zero3);
  spec.model = {.hidden = 200, .blocks = 2};
  const StageRun healthy = run_stage(spec);
  OddModel model(spec.model);
  const int64_t rest = healthy.ledgers[0].live_total(),
                block = Partition(model.units()[1], 3).full() * 4;
  const int64_t root = Partition(model.units()[0], 3).full() * 4;
  spec.limit = rest + root + block / 2;
  try {
    run_stage(spec);
    FAIL("it fitted");
  } catch (const OutOfMemory& e) {
    CHECK(e.phase == "forward");
    CHECK(e.unit == "block0");
    CHECK(e.asked == block);
    CHECK_THAT(e.what(), ContainsSubstring("block0") && ContainsSubstring("parameter") &&
                             ContainsSubstring("Try"));
  }
  spec.limit = healthy.ledgers[0].peak_total();
  CHECK(run_stage(spec).same_bits(healthy));
  spec.limit -= 1;
  CHECK_THROWS_AS(run_stage(spec), OutOfMemory);
}

TEST_CASE("a rank that comes late, ends early or skips a unit is named within the timeout",
          "[stages]") {
  const StageKind stage = any_stage();
  const int rank = stage_number(stage) % 3;
  StageRunSpec late = spec_of(stage);
  late.rank_options.timeout = std::chrono::milliseconds(100);
  late.after_backward = [=](Stage&, OddModel&, Communicator& comm, Memory&) {
    if (comm.rank() == rank) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  CAPTURE(name(stage), rank);
  CHECK_THROWS_MATCHES(run_stage(late), CommunicationError,
                       MessageMatches(ContainsSubstring(str("rank ", rank))));
  StageRunSpec early = spec_of(stage);
  early.after_backward = [=](Stage&, OddModel&, Communicator& comm, Memory& memory) {
    if (comm.rank() == rank)  // a call that the others do not make now
      (void)RankNumbers(comm, memory, std::vector{1.0}, {"loss", Purpose::loss}).wait();
  };
  CHECK_THROWS_MATCHES(
      run_stage(early), CommunicationError,
      MessageMatches(ContainsSubstring(str("rank ", rank)) && ContainsSubstring("loss")));
}

namespace {

// zero3 in which one function does nothing.
enum class Empty { none, parameter, gradient, optimizer, before_backward, reduce, update, unshard };

class EmptyZero3 final : public Stage {
 public:
  EmptyZero3(std::vector<Unit>& units, Communicator& comm, Memories memories,
             const Options& options, Empty empty)
      : Stage(units, comm, memories, options), empty_(empty) {}

 private:
  void allocate(UnitState& u) override {
    if (empty_ != Empty::parameter) u.parameter_shard = new_shard_tensor(u, MemoryUse::parameter);
    if (empty_ != Empty::gradient) u.gradient_shard = new_shard_tensor(u, MemoryUse::gradient);
    if (empty_ != Empty::optimizer) u.optimizer = new_shard_optimizer(u);
  }
  bool reduces_every_micro_batch() const override { return true; }
  void before_backward(UnitState& u) override {
    if (empty_ != Empty::before_backward) u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
  }
  Work reduce_gradient(UnitState& u) override {
    return empty_ == Empty::reduce ? Work{} : reduce_scatter(u, u.full_gradient);
  }
  void after_reduce(UnitState& u) override { u.full_gradient = {}; }
  void update(UnitState& u, const Update& step) override {
    if (empty_ != Empty::update)
      u.optimizer->update(u.parameter_shard, u.gradient_shard, step.lr, step.gradient_scale);
  }
  Work unshard(UnitState& u) override {
    if (empty_ == Empty::unshard) return {};
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    return all_gather(u, u.full_parameter);
  }
  void reshard(UnitState& u) override { u.full_parameter = {}; }

  Empty empty_;
};

}  // namespace

TEST_CASE(
    "a stage whose functions are empty is an error that names function and unit, or trains on",
    "[stages]") {
  const auto error = [](Empty empty) -> std::string {
    StageRunSpec spec{.stage = StageKind::zero3, .ranks = 2, .steps = 1};
    spec.make = [empty](std::vector<Unit>& units, Communicator& comm, Memories memories,
                        const Options& options) {
      std::unique_ptr<Stage> stage =
          std::make_unique<EmptyZero3>(units, comm, memories, options, empty);
      stage->start();
      return stage;
    };
    return sentence_of<std::invalid_argument>([&] { run_stage(spec); });
  };
  CHECK(error(Empty::parameter) ==
        "allocate: unit root has no full_parameter and no parameter_shard");
  CHECK(error(Empty::gradient) == "allocate: unit root has no full_gradient and no gradient_shard");
  CHECK(error(Empty::optimizer) == "allocate: unit root has no optimizer");
  CHECK(error(Empty::unshard) == "unshard: unit root has no full_parameter");
  CHECK(error(Empty::before_backward) == "before_backward: unit root has no full_gradient");
  for (const Empty empty : {Empty::none, Empty::reduce, Empty::update}) CHECK(error(empty) == "");
}

TEST_CASE(
    "units that are numbered wrongly, share a parameter or are held by another stage are refused "
    "by name",
    "[stages]") {
  run_ranks(1, [](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    const auto refusal = [&](std::vector<Unit>& units) {
      return sentence_of<std::invalid_argument>([&] { make_stage(units, comm, memory, {}); });
    };
    Parameter a{.name = "a", .shape = {3}}, b{.name = "b", .shape = {2}};
    std::vector<Unit> units = {{.name = "root", .parameters = {&a}, .index = 0},
                               {.name = "h.0", .parameters = {&b}, .index = 0}};
    CHECK(refusal(units) == "unit h.0 is number 1 of the model's list, but its index is 0");
    units[1].index = 1;
    units[1].parameters = {&a};
    CHECK(refusal(units) ==
          "unit h.0: parameter 'a' (0 of its list) is in unit root already; put what several units "
          "share "
          "into root");
    units[1].parameters = {&b};
    CHECK(refusal(units) == "");
    const auto first = make_stage(units, comm, memory, {});
    CHECK(refusal(units) ==
          "parameter 'a' already has memory: only one stage at a time may hold a model");
    std::vector<Unit> none;
    CHECK(refusal(none) == "a model needs at least one unit");
  });
}
