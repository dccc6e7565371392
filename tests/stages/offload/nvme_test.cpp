// Optimizer state on disk: the bits of state in memory, bytes as predicted, and its checkpoints.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "nn/formats/named_gpt.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/predict/dry_run.h"
#include "stages/predict/plan.h"
#include "stages/train/gpt_spec.h"
#include "tensor/io/disk.h"
#include "tensor/kernels.h"
#include "tests/pairwise.h"
#include "tests/stages/checkpoint/checkpoint_run.h"
#include "tests/stages/stage_run.h"
#include "tests/tensor/io/file_faults.h"
#include "tests/tensor/io/swap_case.h"

using namespace zl;
using namespace zl::test;

namespace {

StageRunSpec on_disk(StageKind stage, Dtype dtype, int64_t sub_group = 1024) {
  StageRunSpec spec{.stage = stage, .ranks = 3, .micro_batches = 2, .model = {.blocks = 3}};
  spec.options.precision = dtype;
  spec.nvme = true;
  spec.swap.sub_group_size = sub_group;
  return spec;
}

StageKind next_sharded(SettingsRow& pick) {
  return pick.next({StageKind::zero1, StageKind::zero2, StageKind::zero3});
}

// [B] that a rank reads in a step, and writes.
int64_t swapped(const StageRun& run, Move move, int steps) {
  return run.moves[0].of(move).bytes / steps;
}

}  // namespace

TEST_CASE("state on disk, in host memory and on the device gives the same bits", "[stages]") {
  SettingsRow pick = any_pair({3, 3, 2, 2});
  const StageKind stage = next_sharded(pick);
  const Dtype dtype = pick.next({Dtype::f32, Dtype::bf16, Dtype::f16});
  const int micro_batches = pick.next({1, 3});
  const double max_norm = pick.next({0.0, 0.5});
  StageRunSpec spec = on_disk(stage, dtype);
  spec.micro_batches = micro_batches, spec.max_norm = max_norm, spec.nvme = false;
  spec.model = {.block_twice = true, .unused_parameter = true};
  if (dtype == Dtype::f16) spec.scale = 1024;
  CAPTURE(name(stage), name(dtype), micro_batches, max_norm);
  const StageRun none = run_stage(spec);
  spec.offload = true;
  CHECK(run_stage(spec).same_bits(none));
  spec.nvme = true;
  for (const int64_t sub_group : {1, 2048, 1'000'000'000}) {
    spec.swap.sub_group_size = sub_group;
    CHECK(run_stage(spec).same_bits(none));
  }
  spec.lr *= 1.01;
  CHECK(run_stage(spec).difference(none) != "");
}

TEST_CASE(
    "serial and pipelined updates, any optimizer and a separate master copy have the same "
    "bits on disk",
    "[stages]") {
  SettingsRow pick = any_pair({3, 2, 2, 2, 2});
  const StageKind stage = next_sharded(pick);
  StageRunSpec spec = on_disk(stage, pick.next({Dtype::f32, Dtype::bf16}));
  spec.options.optimizer.kind = pick.next({OptimizerKind::adamw, OptimizerKind::sgd});
  spec.options.optimizer.momentum = 0.9;
  spec.options.optimizer.separate_master = pick.next({false, true});
  spec.options.reproducible = pick.next({false, true});
  spec.nvme = false;
  const StageRun none = run_stage(spec);
  spec.nvme = true;
  for (const bool read : {false, true})
    for (const bool write : {false, true}) {
      spec.swap.pipeline_read = read, spec.swap.pipeline_write = write;
      CHECK(run_stage(spec).same_bits(none));
    }
}

TEST_CASE("state on disk takes the bytes of the formulas in every pool, and moves them once a step",
          "[stages]") {
  SettingsRow pick = any_pair({3, 2, 2, 3});
  const StageKind stage = next_sharded(pick);
  const Dtype dtype = pick.next({Dtype::f32, Dtype::bf16});
  const int ranks = pick.next({1, 3});
  const int64_t sub_group = pick.next({1, 2048, 1'000'000'000});
  StageRunSpec spec = on_disk(stage, dtype, sub_group);
  spec.ranks = ranks;
  const StageRun run = run_stage(spec);
  CAPTURE(name(stage), name(dtype), ranks, sub_group);
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(off_the_moves(spec, run) == "");
  const MemoryLedger& disk = run.disk_ledgers[0];
  CHECK(disk.live(MemoryUse::optimizer_state) > 0);
  CHECK((disk.live(MemoryUse::master_weights) > 0) == (dtype == Dtype::bf16));
  CHECK(run.host_ledgers[0].live(MemoryUse::optimizer_state) == 0);
  CHECK(run.ledgers[0].peak(MemoryUse::optimizer_state) == 0);
  for (const Move move : {Move::disk_read, Move::disk_write})
    CHECK(swapped(run, move, spec.steps) == disk.live_total());
  for (const int64_t live : run.live_at_end) CHECK(live == 0);
}

// round_up(shard, 1,024), summed over the units, and three chunks: counted by hand from the sizes
// of the models' units.
TEST_CASE("bytes on disk, in host buffers and per step of three models", "[stages]") {
  struct Row {
    const char* model;
    int ranks;
    int64_t sub_group, step[2], buffers[2];  // [B] with two tensors in fp32, with three in bf16
  };
  for (const Row& row :
       {Row{"tiny", 3, 2048, {114'688, 172'032}, {49'152, 73'728}},
        Row{"small", 3, 16'384, {2'269'184, 3'403'776}, {393'216, 589'824}},
        Row{"gpt2", 4, 1 << 20, {248'938'496, 373'407'744}, {25'165'824, 37'748'736}}}) {
    for (const bool master : {false, true}) {
      GptTrainingSpec spec = gpt_spec(named_gpt(row.model));
      spec.engine.stage = StageKind::zero2;
      spec.engine.offload_optimizer = OffloadDevice::nvme;
      spec.engine.nvme_path = "/not used by a dry run";
      spec.engine.swap.sub_group_size = row.sub_group;
      spec.engine.precision = master ? Dtype::bf16 : Dtype::f32;
      spec.ranks = row.ranks, spec.micro_batch = 1;
      const Prediction p = predict(prediction_input(spec));
      const RankReport dry = dry_run(spec, 0);
      const auto sum = [](const auto& of, auto bytes) {
        return (of.*bytes)(MemoryUse::optimizer_state) + (of.*bytes)(MemoryUse::master_weights);
      };
      CAPTURE(row.model, master);
      CHECK(dry.moves.of(Move::disk_read).bytes == row.step[master]);
      CHECK(dry.moves.of(Move::disk_write).bytes == row.step[master]);
      CHECK(dry.disk.live_total() == row.step[master]);
      CHECK(sum(p.disk, &Prediction::PoolBytes::rest_of) == row.step[master]);
      CHECK(sum(dry.host, &MemoryLedger::peak) == row.buffers[master]);
      CHECK(sum(p.host, &Prediction::PoolBytes::peak_of) == row.buffers[master]);
      CHECK(sum(dry.host, &MemoryLedger::live) == 0);
    }
  }
}

TEST_CASE("parameter shards on disk change no bit, and take and move the bytes of the formulas",
          "[stages]") {
  SettingsRow pick = any_pair({3, 2, 2, 2});
  const StageKind stage = pick.next({StageKind::zero3, StageKind("hsdp"), StageKind("zero3_hpz")});
  StageRunSpec spec = on_disk(stage, pick.next({Dtype::f32, Dtype::bf16}), 2048);
  spec.ranks = 4;
  if (spec.stage != StageKind::zero3) spec.options.ranks_per_node = 2;
  spec.options.optimizer.separate_master = pick.next({false, true});
  spec.micro_batches = pick.next({1, 3});
  spec.nvme = false;
  const StageRun none = run_stage(spec);
  spec.nvme_param = true;
  for (const auto& [offload, nvme] : {std::pair{false, false}, {true, false}, {false, true}}) {
    spec.offload = offload, spec.nvme = nvme;
    const StageRun run = run_stage(spec);
    CAPTURE(name(spec.stage), offload, nvme);
    CHECK(run.same_bits(none));
    CHECK(off_the_prediction(spec, run) == "");
    CHECK(off_the_moves(spec, run) == "");
    CHECK(run.disk_ledgers[0].live(MemoryUse::parameter) > 0);
    CHECK(run.ledgers[0].live(MemoryUse::parameter) < none.ledgers[0].live(MemoryUse::parameter));
  }
  spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1'000'000};
  CHECK(run_stage(spec).same_bits(none));
}

TEST_CASE("a skipped step reads and writes nothing, and has the peaks of one that is made",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  StageRunSpec spec = on_disk(stage, Dtype::bf16);
  spec.steps = 1;
  const StageRun made = run_stage(spec);
  spec.after_backward = [](Stage& s, OddModel& model, Communicator&, Memory&) {
    kernel::fill(std::numeric_limits<double>::infinity(), kept_gradient(s.state(model.units()[1])));
  };
  const StageRun skipped = run_stage(spec);
  REQUIRE(skipped.skipped == std::vector<bool>{true});
  for (int i = 0; i < kMemoryUses; ++i) {
    CHECK(skipped.host_ledgers[1].peak(MemoryUse(i)) == made.host_ledgers[1].peak(MemoryUse(i)));
    CHECK(skipped.ledgers[1].peak(MemoryUse(i)) == made.ledgers[1].peak(MemoryUse(i)));
  }
  CHECK(skipped.host_ledgers[1].peak_total() == made.host_ledgers[1].peak_total());
  CHECK(made.moves[1].of(Move::disk_read).bytes > 0);
  CHECK(skipped.moves[1].of(Move::disk_read).bytes == 0);
  CHECK(skipped.moves[1].of(Move::disk_write).bytes == 0);
}

// That a short or interrupted call ends nothing: tests/tensor/io/disk_test.cpp.
TEST_CASE("a fault of one rank's disk ends all ranks with its name and reason", "[stages]") {
  struct Case {
    FileFault fault;
    const char *function, *says;
  };
  const Case c = GENERATE(Case{FileFault::io_error, "pread", "Input/output error"},
                          Case{FileFault::io_error, "pwrite", "Input/output error"},
                          Case{FileFault::no_space, "posix_fallocate", "no disk space for"},
                          Case{FileFault::no_space, "posix_fallocate", " bytes are free); free"},
                          Case{FileFault::no_space, "pwrite", "No space left on device"},
                          Case{FileFault::io_error, "leave_cache", "Input/output error"},
                          Case{FileFault::end_of_file, "pread", "ends before"},
                          Case{FileFault::io_error, "open", "the file of offloaded state"});
  const FastFolder folder;
  StageRunSpec spec = on_disk(StageKind::zero2, Dtype::bf16);
  spec.steps = 2;
  // On the CPU, whatever the tests run on: the disk is the host's, and of these hundreds of ranks
  // each would open a GPU.
  spec.backends = [](int) { return RankBackends{}; };
  const StageRun right = run_stage(spec);
  const auto with_disk = [&folder](FaultyFiles& of_rank_1) {
    return [&](int rank) {
      RankBackends backends;
      backends.disk = rank == 1 ? make_disk_backend(folder.path(""), of_rank_1)
                                : make_disk_backend(folder.path(""));
      return backends;
    };
  };
  FaultyFiles calls;
  calls.fault = c.fault, calls.function = c.function, calls.at = 0;
  spec.backends = with_disk(calls);
  REQUIRE(run_stage(spec).same_bits(right));
  const int64_t all = calls.calls(c.function);
  REQUIRE(all > 0);
  for (int64_t at = 1; at <= all; at += 4) {
    FaultyFiles each;
    each.fault = c.fault, each.function = c.function, each.at = at;
    spec.backends = with_disk(each);
    CAPTURE(int(c.fault), c.function, at, all);
    const std::string sentence = sentence_of([&] { run_stage(spec); });
    CAPTURE(sentence);
    CHECK(sentence.find(c.says) != std::string::npos);
    CHECK(sentence.find(folder.path("")) != std::string::npos);
  }
}

TEST_CASE("nvme needs a disk, and stages that shard nothing need none", "[stages]") {
  Options options{.stage = StageKind::zero1, .offload_optimizer = OffloadDevice::nvme};
  EventStream events;
  Memory device({}, cpu_backend(), events);
  Memory host({}, cpu_backend(), events, {.pool = Pool::host});
  Memory disk({DeviceKind::meta}, meta_backend(), events, {.pool = Pool::disk});
  CHECK(needs_disk(options));
  CHECK_THROWS_AS(check(options, {device, &host}), InputError);
  CHECK_THROWS_AS(check(options, {device, &host, &host}), InputError);
  CHECK_NOTHROW(check(options, {device, &host, &disk}));
  options.swap.sub_group_size = 0;
  CHECK_THROWS_AS(check(options, {device, &host, &disk}), InputError);
  options.stage = StageKind::ddp;
  CHECK_FALSE(needs_disk(options));
  CHECK_NOTHROW(check(options, device));
}

namespace {

GptTrainingSpec with_offload(GptTrainingSpec spec, OffloadDevice device) {
  spec.engine.offload_optimizer = device;
  spec.engine.nvme_path = fast_folder();
  spec.engine.swap.sub_group_size = 1024;
  return spec;
}

}  // namespace

TEST_CASE("checkpoints of state on disk have the bytes of others, and resume in either way",
          "[stages]") {
  struct Case {
    StageKind stage;
    Dtype precision;
    CheckpointWrites writes;
  };
  const auto [stage, precision, writes] =
      GENERATE(Case{StageKind::zero1, Dtype::f32, CheckpointWrites::still},
               Case{StageKind::zero2, Dtype::bf16, CheckpointWrites::wait},
               Case{StageKind::zero3, Dtype::f16, CheckpointWrites::snapshot});
  CAPTURE(name(stage), name(precision), name(writes));
  const ScratchFolder scratch;
  const auto spec_of = [&](const char* folder, OffloadDevice device) {
    GptTrainingSpec spec = checkpoint_spec(scratch.path(folder), stage, 3);
    spec.engine.precision = precision;
    spec.checkpoint.writes = writes;
    spec.steps = 4;
    return with_offload(spec, device);
  };
  const Bits whole = train_bits(spec_of("memory", OffloadDevice::none));
  CHECK(train_bits(spec_of("disk", OffloadDevice::nvme)) == whole);
  for (const int64_t step : {1, 4}) {
    CAPTURE(step);
    CHECK(data_files(checkpoint_path(scratch.path("disk"), step)) ==
          data_files(checkpoint_path(scratch.path("memory"), step)));
  }
  CHECK(data_files(checkpoint_path(scratch.path("disk"), 3)) !=
        data_files(checkpoint_path(scratch.path("memory"), 4)));
  for (const auto& [from, device] :
       {std::pair{"memory", OffloadDevice::nvme}, {"disk", OffloadDevice::none}}) {
    GptTrainingSpec spec = spec_of((std::string(from) + " resumed").c_str(), device);
    spec.checkpoint.resume = checkpoint_path(scratch.path(from), 2);
    const Bits resumed = train_bits(spec);
    CAPTURE(from);
    REQUIRE(resumed.losses.size() == 2);
    CHECK(resumed.weights == whole.weights);
    CHECK(resumed.losses == std::vector(whole.losses.begin() + 2, whole.losses.end()));
  }
}

TEST_CASE("a save of state on disk takes one buffer of host memory, as predicted", "[stages]") {
  const CheckpointWrites writes = GENERATE(CheckpointWrites::wait, CheckpointWrites::still);
  const ScratchFolder scratch;
  GptTrainingSpec spec =
      with_offload(checkpoint_spec(scratch.path("a"), StageKind::zero2, 2), OffloadDevice::nvme);
  spec.checkpoint.writes = writes;
  const TrainingResult with = run_training(spec);
  CHECK(checkpoint_bytes(prediction_input(spec), DeviceKind::cpu).buffer == 1 << 20);
  for (int r = 0; r < 2; ++r) {
    const MemoryLedger& host = with.ranks[size_t(r)].host;
    CHECK(host.peak(MemoryUse::workspace) >= 1 << 20);
    CHECK(host.peak_total() == dry_run(spec, r).host.peak_total());
  }
  spec.engine.offload_optimizer = OffloadDevice::cpu;
  spec.checkpoint.folder = scratch.path("b");
  CHECK(run_training(spec).ranks[0].host.peak(MemoryUse::workspace) < 1 << 20);
}
