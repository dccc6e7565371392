// What a save costs: bytes written, memory and traffic, as predicted. The bytes of a checkpoint
// depend on the state alone, not on the stage or the ranks that save it.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "stages/predict/closed_form.h"
#include "stages/predict/dry_run.h"
#include "tensor/io/safetensors.h"
#include "tests/pairwise.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

// Every write: file, first byte, bytes, thread.
class NotedWrites final : public QuickFiles {
 public:
  struct Write {
    int64_t begin, bytes;
    std::thread::id thread;
  };
  int open(const std::string& path, int flags) override {
    const int file = FileCalls::open(path, flags);
    const std::lock_guard lock(mutex_);
    names_[file] = std::filesystem::path(path).filename().string();
    return file;
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override {
    const std::lock_guard lock(mutex_);
    writes[names_.at(file)].push_back({at, int64_t(bytes), std::this_thread::get_id()});
    return FileCalls::pwrite(file, data, bytes, at);
  }
  std::map<std::string, std::vector<Write>> writes;  // by the name of the file

 private:
  std::mutex mutex_;
  std::map<int, std::string> names_;
};

// The first write of each thread takes longer than a step.
class LateWrites final : public QuickFiles {
 public:
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override {
    thread_local bool first = true;
    if (std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    return FileCalls::pwrite(file, data, bytes, at);
  }
};

// The model `tiny` of the program.
GptTrainingSpec tiny(const std::string& folder, StageKind stage, int ranks) {
  GptTrainingSpec spec = checkpoint_spec(folder, stage, ranks);
  const GptTrainingSpec model =
      gpt_spec({.layers = 2, .heads = 2, .width = 32, .block_size = 32, .vocab = 256}, 7);
  spec.model = model.model;
  spec.make_model = model.make_model;
  spec.input_row = model.input_row, spec.target_row = model.target_row;
  spec.steps = 4;
  return spec;
}

}  // namespace

TEST_CASE("the ranks write every byte of a checkpoint once, each its own shard", "[stages]") {
  struct Case {
    OptimizerKind kind;
    double momentum;
    int64_t bytes;  // per parameter
  };
  SettingsRow pick = any_pair({4, 3, 3});
  const StageKind stage = pick.next_stage();
  const int ranks = pick.next({1, 3, 4});
  const Case c = pick.next<Case>(
      {{OptimizerKind::adamw, 0, 12}, {OptimizerKind::sgd, 0.9, 8}, {OptimizerKind::sgd, 0, 4}});
  CAPTURE(name(stage), ranks, c.bytes);
  const ScratchFolder scratch;
  NotedWrites files;
  GptTrainingSpec spec = checkpoint_spec(scratch.path("run"), stage, ranks);
  spec.engine.optimizer.kind = c.kind;
  spec.engine.optimizer.momentum = c.momentum;
  spec.checkpoint.files = &files;
  spec.steps = 1;
  run_training(spec);
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("run")))
    CHECK(!(is_temporary(entry.path().string()) &&
            entry.is_directory()));  // one folder for all ranks
  int64_t data = 0;
  std::map<std::thread::id, int64_t> by_rank;
  for (auto& [name, writes] : files.writes) {
    if (!name.ends_with(".safetensors")) continue;
    std::ranges::sort(writes, {}, &NotedWrites::Write::begin);
    int64_t end = 0;
    for (const NotedWrites::Write& write : writes) {
      REQUIRE(write.begin == end);  // no gap, and no byte twice
      end += write.bytes;
      if (write.begin == 0) continue;  // the header
      data += write.bytes;
      by_rank[write.thread] += write.bytes;
    }
    CHECK(end == int64_t(std::filesystem::file_size(checkpoint_path(scratch.path("run"), 1) + "/" +
                                                    name)));
  }
  CHECK(data == c.bytes * spec.model.parameters());
  CHECK(int(by_rank.size()) == ranks);
  const std::unique_ptr<Model> model = spec.make_model();
  int64_t shard = 0;
  for (const int64_t unit : padded_unit_sizes(model->units(), ranks)) shard += unit / ranks;
  for (const auto& [rank, bytes] : by_rank) CHECK(bytes <= c.bytes * shard);
}

TEST_CASE("a save needs no memory but a snapshot's 12 bytes per parameter and rank", "[stages]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const bool offload = GENERATE(false, true);
  CAPTURE(name(stage), offload);
  const ScratchFolder scratch;
  GptTrainingSpec plain = tiny("", stage, 3);
  plain.engine.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
  const TrainingResult without = run_training(plain);
  for (const CheckpointWrites writes :
       {CheckpointWrites::wait, CheckpointWrites::still, CheckpointWrites::snapshot}) {
    GptTrainingSpec spec = tiny(scratch.path(name(writes)), stage, 3);
    spec.engine.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
    spec.checkpoint.writes = writes;
    spec.checkpoint.save_every = 2;
    const TrainingResult with = run_training(spec);
    CAPTURE(name(writes));
    for (size_t r = 0; r < 3; ++r) {
      const RankReport dry = dry_run(spec, int(r));
      const MemoryLedger &host = with.ranks[r].host, &host_before = without.ranks[r].host;
      const int64_t copies = writes == CheckpointWrites::snapshot ? 139'008 : 0;  // 12 * 34,752 / 3
      CHECK(host.peak_total() == host_before.peak_total() + copies);
      CHECK(host.peak(MemoryUse::workspace) == host_before.peak(MemoryUse::workspace) + copies);
      CHECK(host.live_total() == host_before.live_total());
      CHECK(with.ranks[r].rest.peak_total() == without.ranks[r].rest.peak_total());
      CHECK(dry.host.peak_total() == host.peak_total());
      CHECK(with.ranks[r].log.rows() == without.ranks[r].log.rows());
    }
  }
}

TEST_CASE("where ranks write one by one, as on NFS, no two write at the same time", "[stages]") {
  const bool one_by_one = GENERATE(true, false);
  const OffloadDevice offload =
      GENERATE(OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme);
  CAPTURE(one_by_one, name(offload));
  // The twin: ranks that write at the same time meet in the first write of each.
  class TimedWrites final : public QuickFiles {
   public:
    ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) override {
      most = std::max(most.load(), ++now);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const ssize_t written = FileCalls::pwrite(file, data, bytes, at);
      --now;
      return written;
    }
    std::atomic<int> now = 0, most = 0;
  } files;
  const ScratchFolder scratch;
  GptTrainingSpec spec = tiny(scratch.path("all"), StageKind::zero3, 3);
  spec.engine.offload_optimizer = offload;
  spec.engine.nvme_path = scratch.path("");
  spec.engine.swap.sub_group_size = 1024;
  spec.steps = 2;
  run_training(spec);
  spec.checkpoint.folder = scratch.path("timed");
  spec.checkpoint.one_by_one = one_by_one;
  spec.checkpoint.save_every = 2;
  spec.checkpoint.writes = CheckpointWrites::snapshot;  // then it waits all the same
  spec.checkpoint.files = &files;
  run_training(spec);
  CHECK(data_files(checkpoint_path(scratch.path("timed"), 2)) ==
        data_files(checkpoint_path(scratch.path("all"), 2)));
  CHECK((files.most == 1) == one_by_one);
}

TEST_CASE(
    "a save in the background has the state of its step, also if it is written after the next "
    "update",
    "[stages]") {
  const CheckpointWrites writes = GENERATE(CheckpointWrites::still, CheckpointWrites::snapshot);
  CAPTURE(name(writes));
  const ScratchFolder scratch;
  TrainingSpec spec = checkpoint_spec(scratch.path("wait"), StageKind::zero2, 2);
  spec.steps = 2;
  run_training(spec);
  LateWrites late;
  spec.checkpoint.folder = scratch.path("late");
  spec.checkpoint.writes = writes;
  spec.checkpoint.files = &late;
  run_training(spec);
  const auto files = [&](const char* run, int64_t step) {
    return data_files(checkpoint_path(scratch.path(run), step));
  };
  for (const int64_t step : {1, 2}) CHECK(files("late", step) == files("wait", step));
  CHECK(files("late", 1) != files("late", 2));  // the twin
}

TEST_CASE("stages that have the same bits save the same bytes", "[stages]") {
  const ScratchFolder scratch;
  const auto [ranks, precision] =
      GENERATE(std::pair{1, Dtype::f16}, std::pair{2, Dtype::bf16}, std::pair{3, Dtype::f32},
               std::pair{3, Dtype::f16}, std::pair{4, Dtype::bf16});
  CAPTURE(ranks, name(precision));
  std::map<StageKind, DataFiles> one, two;  // micro-batches per step
  for (const StageKind stage : kStages) {
    GptTrainingSpec spec = checkpoint_spec("", stage, ranks);
    spec.engine.precision = precision;
    one[stage] = data_files(trained(scratch, spec));
    spec.engine.accumulation = 2;
    two[stage] = data_files(trained(scratch, spec));
  }
  REQUIRE(one[StageKind::ddp].size() == 3);
  for (const StageKind stage : kStages) CHECK(one[stage] == one[StageKind::ddp]);
  CHECK(two[StageKind::zero1] == two[StageKind::ddp]);
  CHECK(two[StageKind::zero3] == two[StageKind::zero2]);
  CHECK(two[StageKind::ddp] != one[StageKind::ddp]);
}

// Each loads from three others. All save the same bytes, so it loads what any of them saves.
TEST_CASE("load and save give the same bytes for every pair of stages and numbers of ranks",
          "[stages][seeds]") {
  const ScratchFolder scratch;
  const std::string origin = trained(scratch, checkpoint_spec("", StageKind::ddp, 3));
  const DataFiles expected = data_files(origin);
  std::vector<TrainingSpec> specs;
  for (const StageKind stage : kStages)
    for (const int ranks : {1, 2, 3, 4, 8}) {
      specs.push_back(checkpoint_spec("", stage, ranks));
      // Master weights in 16-bit training are fp32, so nothing is lost.
      if (ranks % 2 == 0) specs.back().engine.precision = Dtype::bf16;
      if (stage == StageKind::zero3 && ranks % 4 != 0)  // shards of parameters on the host
        specs.back().engine.offload_param = OffloadDevice::cpu;
    }
  specs.push_back(checkpoint_spec("", StageKind::zero3, 12));
  std::string last = origin;
  REQUIRE(specs.size() == 21);  // steps of 5 and of 8 reach all of them
  for (const size_t step : {1, 5, 8})
    for (size_t i = 0; i < specs.size(); ++i) {
      const TrainingSpec& spec = specs[(i + 1) * step % specs.size()];
      const std::string folder = scratch.path(str(step, " ", i));
      const std::string to = load_and_save(spec, last, folder);
      CAPTURE(name(spec.engine.stage), spec.ranks, last);
      REQUIRE(data_files(to) == expected);
      last = to;
    }
}

TEST_CASE("a model.safetensors of a checkpoint has the run's weights, and verify accepts it",
          "[stages]") {
  const ScratchFolder scratch;
  const GptTrainingSpec spec = checkpoint_spec(scratch.path("a"), StageKind::zero3, 3);
  const Bits bits = train_bits(spec);
  const std::string folder = checkpoint_path(scratch.path("a"), 3);
  CHECK(verify_checkpoint(folder).empty());
  const SafetensorsFile file(folder + "/model.safetensors");
  std::vector<float> weights;
  for (const SafetensorsEntry& entry : file.entries())
    for (const float value : file.read_floats(entry.name)) weights.push_back(value);
  CHECK(weights == bits.weights);
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"n_head", "3"}});
}
