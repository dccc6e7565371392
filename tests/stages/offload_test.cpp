// The optimizer and parameter shards on the host: the same bits, other bytes; and what every
// offload moves.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>

#include "stages/train/comparison.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec sharded(StageKind stage, Dtype dtype) {
  StageRunSpec spec{.stage = stage, .ranks = 3, .micro_batches = 2, .model = {.blocks = 3}};
  spec.options.precision = dtype;
  return spec;
}

}  // namespace

TEST_CASE("offloading the optimizer changes no bit", "[stages]") {
  SettingsRow pick = any_pair({3, 2, 2, 2, 2});
  const StageKind stage = pick.next({StageKind::zero1, StageKind::zero2, StageKind::zero3});
  const Dtype dtype = pick.next({Dtype::f32, Dtype::bf16});
  const bool separate_master = pick.next({false, true}), wide = pick.next({false, true});
  const OptimizerKind kind = pick.next({OptimizerKind::adamw, OptimizerKind::sgd});
  StageRunSpec spec = sharded(stage, dtype);
  spec.model = {.block_twice = true, .unused_parameter = true};
  spec.options.optimizer.separate_master = separate_master;
  spec.options.optimizer.kind = kind;
  if (wide) spec.options.grad_accum_dtype = Dtype::f32;
  const StageRun stays = run_stage(spec);
  spec.offload = true;
  const StageRun offloaded = run_stage(spec);
  CAPTURE(name(stage), name(dtype), separate_master, wide);
  CHECK(offloaded.same_bits(stays));
  CHECK(offloaded.host_ledgers[0].peak_total() > 0);
  CHECK(stays.host_ledgers[0].peak_total() == 0);
}

TEST_CASE("offloaded state is 0 bytes of the device and all of it on the host, as predicted",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16);
  const int ranks = GENERATE(1, 3);
  StageRunSpec spec = sharded(stage, dtype);
  spec.ranks = ranks;
  const StageRun stays = run_stage(spec);
  spec.offload = true;
  const StageRun run = run_stage(spec);
  CAPTURE(name(stage), name(dtype), ranks);
  CHECK(off_the_prediction(spec, run) == "");
  const MemoryLedger &device = run.ledgers[0], &host = run.host_ledgers[0];
  CHECK(device.live(MemoryUse::optimizer_state) == 0);
  CHECK(device.live(MemoryUse::master_weights) == 0);
  CHECK(host.live(MemoryUse::optimizer_state) == stays.ledgers[0].live(MemoryUse::optimizer_state));
  CHECK(host.live(MemoryUse::master_weights) == stays.ledgers[0].live(MemoryUse::master_weights));
  const bool takes_gradient =
      stage != StageKind::zero1;  // zero1's is whole and stays where backward fills it
  CHECK((host.live(MemoryUse::gradient) > 0) == takes_gradient);
  CHECK((device.live(MemoryUse::gradient) > 0) != takes_gradient);
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
}

namespace {

// 3 ranks, 2 micro-batches and sizes that do not divide, with clipping.
StageRunSpec odd(StageKind stage, Dtype dtype) {
  StageRunSpec spec{
      .stage = stage, .ranks = 3, .micro_batches = 2, .steps = 3, .model = {.blocks = 3}};
  spec.options.precision = dtype;
  if (dtype == Dtype::f16) spec.scale = 256;
  if (stage == StageKind("hsdp") || stage == StageKind("zero3_hpz") ||
      stage == StageKind("zero3_qgz")) {
    spec.ranks = 4;
    spec.options.ranks_per_node = 2;
  }
  return spec;
}

// Settings that must not change bits, by number.
constexpr int kSettings = 8;
void change(StageRunSpec& spec, int setting) {
  Options& o = spec.options;
  if (setting == 1) o.overlap.overlap_comm = true;
  if (setting == 2) o.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1'000'000};
  if (setting == 3) o.overlap = {.prefetch_bucket_size = 400, .max_live_parameters = 900};
  if (setting == 4) o.overlap = {.overlap_comm = true, .max_reuse_distance = 1'000'000};
  if (setting == 5) o.overlap = {.max_reuse_distance = 1};
  if (setting == 6) o.reduce_bucket_size = o.allgather_bucket_size = 600;
  if (setting == 7) spec.micro_batches = 1;
}

}  // namespace

TEST_CASE("offloaded parameters change no bit, in any precision, schedule and stage that shards",
          "[stages][moves]") {
  SettingsRow pick = any_pair({kSettings, 3, 2});
  const int setting = pick.next({0, 1, 2, 3, 4, 5, 6, 7});
  const Dtype dtype = pick.next({Dtype::f32, Dtype::bf16, Dtype::f16});
  StageRunSpec spec = odd(StageKind::zero3, dtype);
  change(spec, setting);
  const StageRun stays = run_stage(spec);
  spec.offload_param = true;
  spec.offload = pick.next({false, true});
  CAPTURE(name(dtype), setting, spec.offload);
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(stays));
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(off_the_traffic(spec, run) == "");
  CHECK(off_the_moves(spec, run) == "");
  CHECK(run.ledgers[1].live(MemoryUse::parameter) == 0);
  CHECK(run.host_ledgers[1].live(MemoryUse::parameter) ==
        stays.ledgers[1].live(MemoryUse::parameter));
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
}

TEST_CASE("the parameters of an offloaded run come from the host's shards", "[stages][moves]") {
  StageRunSpec spec = odd(StageKind::zero3, Dtype::bf16);
  const StageRun stays = run_stage(spec);
  spec.offload_param = true;
  std::atomic<int> on_device = 0;
  spec.after_step = [&](Stage& stage, OddModel&, Communicator&, Memory& device) {
    const Tensor& shard = stage.units()[1].parameter_shard;
    if (&shard.memory() == &device) ++on_device;
    kernel::fill(0.125, shard);
  };
  CHECK_FALSE(run_stage(spec).difference(stays).empty());
  CHECK(on_device == 0);
}

TEST_CASE("variants with parameter shards offload them with the same bits, as predicted",
          "[stages][moves]") {
  SettingsRow pick = any_pair({3, 2, 3, 2});
  const StageKind stage =
      pick.next({StageKind("hsdp"), StageKind("zero3_hpz"), StageKind("zero3_qgz")});
  const Dtype dtype = pick.next({Dtype::f32, Dtype::bf16});
  const int setting = pick.next({0, 2, 4});
  const bool optimizer = pick.next({false, true});
  CAPTURE(name(stage), name(dtype), setting, optimizer);
  StageRunSpec spec = odd(stage, dtype);
  change(spec, setting);
  const StageRun stays = run_stage(spec);
  spec.offload_param = true;
  spec.offload = optimizer;
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(stays));
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(off_the_moves(spec, run) == "");
}

TEST_CASE("what an offloaded optimizer moves is predicted in every stage and precision",
          "[stages][moves]") {
  const StageKind stage =
      GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3, StageKind("hsdp"),
               StageKind("zero3_hpz"), StageKind("zero3_qgz"));
  const int setting = GENERATE(Catch::Generators::range(0, 11));
  CAPTURE(name(stage), setting);
  StageRunSpec spec = odd(stage, setting == 2 ? Dtype::f32 : Dtype::bf16);
  spec.steps = 1;
  Options& o = spec.options;
  const bool lossy = stage == StageKind("zero3_qgz") || stage == StageKind("hsdp");
  spec.offload = true;
  if (setting == 0) spec.micro_batches = 3;
  if (setting == 1) o.precision = Dtype::f16, spec.scale = 128;
  if (setting == 3) o.optimizer.separate_master = true, o.precision = Dtype::f32;
  if (setting == 4) o.grad_accum_dtype = Dtype::f32;
  if (setting == 5 && stage != StageKind("zero3_qgz")) o.communication_data_type = Dtype::f32;
  if (setting == 6) o.optimizer.kind = OptimizerKind::sgd, o.precision = Dtype::f32;
  if (setting == 7) o.overlap = {.overlap_comm = true, .prefetch_bucket_size = 500};
  if (setting == 8 && !lossy) o.reproducible = true;
  if (setting == 9) o.reduce_bucket_size = 1'000'000;
  if (setting == 10 && stage != StageKind("zero3_qgz"))
    o.grad_accum_dtype = Dtype::f32, o.communication_data_type = Dtype::bf16;
  const StageRun run = run_stage(spec);
  CHECK(off_the_moves(spec, run) == "");
  CHECK(run.moves[0].of(Move::device_to_host).bytes > 0);
  // The twin: the moves of another number of micro-batches are not these.
  if (stage == StageKind::zero1) return;
  StageRunSpec other = spec;
  ++other.micro_batches;
  CHECK(off_the_moves(other, run) != "");
}

TEST_CASE("an update reads the parameters of a unit with a frozen one", "[stages][moves]") {
  StageRunSpec spec = odd(StageKind::zero3, Dtype::bf16);
  spec.model.frozen = "block1.down_bias";  // in the shard of one rank
  const StageRun stays = run_stage(spec);
  (GENERATE(false, true) ? spec.offload : spec.offload_param) = true;
  const StageRun run = run_stage(spec);
  CHECK(run.same_bits(stays));
  CHECK(off_the_moves(spec, run) == "");
  spec.model.frozen = "";
  CHECK(off_the_moves(spec, run) != "");
}

TEST_CASE("a skipped step moves gradients, but no parameters back", "[stages][moves]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const bool parameters = GENERATE(false, true);
  StageRunSpec spec = odd(stage, Dtype::bf16);
  spec.offload = !parameters;
  spec.offload_param = parameters;
  std::vector<int> steps(3);  // made, by rank
  spec.after_step = [&](Stage&, OddModel&, Communicator& comm, Memory&) {
    ++steps[size_t(comm.rank())];
  };
  spec.after_backward = [&](Stage& s, OddModel& model, Communicator& comm, Memory&) {
    if (steps[size_t(comm.rank())] == 1)
      kernel::fill(std::numeric_limits<double>::infinity(),
                   kept_gradient(s.state(model.units()[1])));
  };
  const StageRun run = run_stage(spec);
  CAPTURE(name(stage), parameters);
  CHECK(run.skipped == std::vector<bool>{false, true, false});
  CHECK(off_the_moves(spec, run) == "");
  // The twin: were the step counted as made, something would be missing.
  StageRun made = run;
  made.skipped = {false, false, false};
  CHECK((off_the_moves(spec, made) != "") == (!parameters || stage == StageKind::zero3));
}

TEST_CASE("a comparison whose moves differ from the prediction fails", "[stages][moves]") {
  StageRunSpec spec = odd(StageKind::zero3, Dtype::bf16);
  spec.offload = spec.offload_param = true;
  const auto data = odd_data(spec);
  Comparison comparison =
      compare_stages(training_spec(spec, *data), {StageKind::zero1, StageKind::zero3});
  CHECK(comparison.ok());
  StageOutcome& zero3 = comparison.stages.back();
  REQUIRE(zero3.moves.size() == 6);  // two directions on three ranks
  zero3.moves[3].bytes += 1;
  CHECK_FALSE(zero3.predictions_exact());
  CHECK_FALSE(comparison.ok());
}

TEST_CASE("the host must hold what is offloaded, to the byte", "[stages][moves]") {
  StageRunSpec spec = odd(StageKind::zero3, Dtype::f32);
  spec.offload_param = GENERATE(false, true);
  spec.offload = !spec.offload_param || GENERATE(false, true);
  spec.host_limit = run_stage(spec).host_ledgers[0].peak_total();
  CHECK_NOTHROW(run_stage(spec));
  spec.host_limit -= 1;
  try {
    run_stage(spec);
    FAIL("it fits");
  } catch (const OutOfMemory& e) {
    CHECK(e.pool == Pool::host);
    CHECK(std::string(e.what()).find("out of host memory") != std::string::npos);
  }
}

TEST_CASE("stages that cannot do what an option asks say so", "[stages][moves]") {
  using Catch::Matchers::ContainsSubstring;
  run_ranks(1, [](Communicator& comm) {
    Memory device({}, cpu_backend(), comm.events());
    Memory host({}, cpu_backend(), comm.events(), {.pool = Pool::host});
    Options options{.stage = StageKind::zero3, .offload_param = OffloadDevice::cpu};
    OddModel model({});
    const auto memory_of = [&](MemoryUse use) {
      return &make_stage(model.units(), comm, {device, &host}, options)->memory_of(use);
    };
    CHECK(memory_of(MemoryUse::parameter) == &host);
    CHECK(memory_of(MemoryUse::optimizer_state) == &device);
    CHECK_THROWS_WITH(check(options, device), ContainsSubstring("pass a host Memory"));
    options.stage = StageKind("zero3_qwz");
    CHECK_THROWS_WITH(memory_of(MemoryUse::parameter), ContainsSubstring("take zero3"));
    Options typed{.stage = StageKind("zero3_qgz"), .communication_data_type = Dtype::f32};
    typed.ranks_per_node = 1;
    CHECK_THROWS_AS(make_stage(model.units(), comm, {device, &host}, typed), InputError);
    options.stage = StageKind::zero2;
    CHECK(memory_of(MemoryUse::parameter) == &device);
  });
}
