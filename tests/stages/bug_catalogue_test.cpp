// Bugs that real systems had, each re-enacted. The names give the sources: DS is DeepSpeed, LC
// llm.c, PT PyTorch, MG Megatron-LM, CA ColossalAI, FS fairscale.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <deque>
#include <limits>

#include "stages/train/weights.h"
#include "tensor/kernels.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec with_gradients(StageRunSpec spec, double value) {
  spec.after_backward = [value](Stage& s, OddModel& m, Communicator& c, Memory&) {
    set_gradients(s, m, c, value);
  };
  return spec;
}

int64_t parameters(const OddModelOptions& options) {
  OddModel model(options);
  int64_t n = 0;
  for (const Unit& u : model.units()) n += u.numel();
  return n;
}

}  // namespace

TEST_CASE(
    "the norm keeps its digits from 1e-20 to 1e20, in every type that can hold them (FS #520)",
    "[stages]") {
  const StageKind stage = any_stage();
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const double value =
      GENERATE(0x1p-66, 0x1p66);  // about 1e-20 and 1e20; squares of them are beyond fp32
  StageRunSpec spec{.stage = stage, .ranks = 3, .steps = 1, .lr = 0};
  spec.options.precision = dtype;
  const StageRun run = run_stage(with_gradients(spec, value));
  CHECK(run.norms[0] == value * std::sqrt(double(parameters(spec.model))));
  CHECK_FALSE(run.skipped[0]);
}

TEST_CASE(
    "parameters of 0, 1, N - 1, N and N + 1 elements have their place in every stage (DS "
    "#8280, DS #7736)",
    "[stages]") {
  const StageKind stage = any_stage();
  const int ranks = GENERATE(1, 3, 17);  // 17 ranks: most own nothing but padding
  std::vector<std::vector<float>> seen(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events(), {.poison = true});
    std::deque<Parameter> parameters;
    std::vector<Unit> units = {{.name = "root", .parameters = {}, .index = 0},
                               {.name = "empty", .parameters = {}, .index = 1}};
    for (const int64_t n : {0, 1, ranks - 1, ranks, ranks + 1}) {
      parameters.push_back({.name = str("p", parameters.size()), .shape = {n}, .initial_mean = 1});
      units[0].parameters.push_back(&parameters.back());
    }
    Options options{.stage = stage};
    options.optimizer.weight_decay = 0.5;
    const auto s = make_stage(units, comm, memory, options);
    StepSchedule schedule(*s);
    schedule.update(schedule.measure_gradient(1), 1, 1);  // decays by half: gradients are zero
    visit_weights(*s, [&](const Parameter&, const Tensor& data) {
      for (const float w : kernel::download_floats(data)) seen[size_t(comm.rank())].push_back(w);
    });
  });
  for (const auto& values : seen)
    CHECK(values == std::vector<float>(size_t(1 + ranks - 1 + ranks + ranks + 1), 0.5f));
}

TEST_CASE(
    "ranks that own nothing but padding take part in everything (MG 3c4645201a, "
    "facebookresearch/optimizers#149)",
    "[stages]") {
  const OddModelOptions tiny{
      .vocab = 2, .channels = 1, .hidden = 1, .blocks = 1};  // 8 ranks, units of a few elements
  const StageRun ddp = run_stage({.ranks = 8, .model = tiny});
  CHECK(std::isfinite(ddp.norms[0]));
  for (const StageKind stage : {StageKind::zero1, StageKind::zero2, StageKind::zero3}) {
    const StageRun run = run_stage({.stage = stage, .ranks = 8, .model = tiny});
    CHECK(run.same_bits(ddp));
    for (const CommunicationLog& log : run.logs)
      CHECK(log.rows().size() == run.logs[0].rows().size());
  }
}

TEST_CASE(
    "every shard's optimizer has made the same number of updates; skipped steps do not count "
    "(DS de8871850, DS 44c51e342)",
    "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{.stage = stage, .ranks = 3, .steps = 5};
  spec.after_backward = [n = std::vector<int>(3, 0)](Stage& s, OddModel& m, Communicator& c,
                                                     Memory&) mutable {
    if (++n[size_t(c.rank())] == 3)
      set_gradients(s, m, c, std::numeric_limits<double>::quiet_NaN());
  };
  std::vector<int64_t> steps(3, -1);
  spec.after_step = [&](Stage& s, OddModel& model, Communicator& c, Memory&) {
    for (const Unit& u : model.units()) steps[size_t(c.rank())] = s.state(u).optimizer->steps();
  };
  run_stage(spec);
  CHECK(steps == std::vector<int64_t>{4, 4, 4});
}

TEST_CASE("all ranks and all world sizes start from the same weights", "[stages]") {
  const StageKind stage = any_stage();
  const StageRun one = run_stage({.ranks = 1, .steps = 0}),
                 five = run_stage({.stage = stage, .ranks = 5, .steps = 0});
  CHECK(one.weights == five.weights);
  StageRunSpec other{.stage = stage, .ranks = 5, .steps = 0};
  other.options.seed = 4;
  CHECK(run_stage(other).weights != one.weights);
}

TEST_CASE(
    "a unit that only some ranks run is an error that names it, never a wait (PT #43259, DS "
    "#945)",
    "[stages]") {
  StageRunSpec spec{.stage = any_stage(), .ranks = 2, .steps = 1};
  spec.rank_options.timeout = std::chrono::seconds(5);
  spec.at_start = [](Stage&, OddModel& model, Communicator& comm, Memory&) {
    model.shallow = comm.rank() == 1;  // leaves block1 out
  };
  CHECK_THROWS_MATCHES(
      run_stage(spec), CommunicationError,
      Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring("block1")));
}

TEST_CASE(
    "after each pass and step exactly the resting bytes are live, also with an evaluation "
    "in between (DS ddd48b36a, DS cd20a3bbc)",
    "[stages]") {
  const StageKind stage = any_stage();
  StageRunSpec spec{
      .stage = stage, .ranks = 3, .micro_batches = 2, .steps = 3, .model = {.block_twice = true}};
  std::vector<int64_t> rest(3, -1);
  const auto check = [&](const Memory& memory, const Communicator& comm) {
    int64_t& expected = rest[size_t(comm.rank())];
    const int64_t live = memory.ledger().live_total();
    if (expected < 0) expected = live;
    if (live != expected)
      FAIL("rank " << comm.rank() << " holds " << live << " bytes, not " << expected);
  };
  const StageRun without = run_stage(spec);
  spec.at_start = [&](Stage&, OddModel&, Communicator& comm, Memory& memory) {
    check(memory, comm);
  };
  spec.after_step = [&](Stage& s, OddModel& model, Communicator& comm, Memory& memory) {
    check(memory, comm);
    {
      const Tensor ids = Tensor::zeros(memory, MemoryUse::activation, {1, 3}, Dtype::i32);
      StepSchedule observer(s);
      (void)kernel::read(model.loss(nullptr, observer, {ids, ids}).value());
    }
    check(memory, comm);
  };
  const StageRun with = run_stage(spec);
  CHECK(with.same_bits(without));  // an evaluation leaves no trace in training
}

TEST_CASE(
    "a model that outlives its stage holds no memory of it, and another stage may take it (DS "
    "af9a622a7)",
    "[stages]") {
  const StageKind stage = any_stage();
  std::vector<int64_t> with_stage(2), without(2, -1);
  run_ranks(2, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    OddModel model({});
    const size_t rank = size_t(comm.rank());
    for (int i = 0; i < 2; ++i) {
      {
        const auto s = make_stage(model.units(), comm, memory, {.stage = stage});
        with_stage[rank] = memory.ledger().live_total();
      }
      without[rank] = memory.ledger().live_total();
    }
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(with_stage[rank] > 0);
    CHECK(without[rank] == 0);
  }
}
