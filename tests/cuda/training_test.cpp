// Training a GPT on GPUs, as `zerolab train` and `zerolab compare` do.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "nn/data/token_data.h"
#include "nn/data/windows.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/predict/dry_run.h"
#include "stages/train/gpt_spec.h"
#include "tests/device.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

const Windows& text(int64_t window) {
  static const Windows windows = [&] {
    std::string text;
    for (int i = 0; i < 900; ++i) text += char('a' + i * i % 23);
    return Windows(TokenData::of_text("text", text), window);
  }();
  return windows;
}

constexpr int64_t kWindow = 7;

GptTrainingSpec on_gpu(int ranks, std::vector<int> gpus = {0},
                       Recompute recompute = Recompute::selective, int64_t width = 12) {
  GptTrainingSpec spec = gpt_spec(
      {.layers = 2, .heads = 2, .width = width, .block_size = 9, .vocab = 256}, kWindow, recompute);
  spec.data = &text(kWindow);
  spec.micro_batch = 2;
  spec.steps = 3;
  spec.ranks = ranks;
  spec.poison = true;
  spec.device = DeviceKind::cuda;
  spec.backends = on_test_gpus(std::move(gpus));
  return spec;
}

}  // namespace

TEST_CASE("a dry run of a GPU predicts other bytes than one of the CPU, and those are the GPU's",
          "[cuda][training]") {
  TrainingSpec spec = on_gpu(2);
  spec.engine.stage = StageKind::zero3;
  const TrainingResult real = run_training(spec);
  const RankReport as_cuda = dry_run(spec, 1);
  spec.device = DeviceKind::cpu;
  const RankReport as_cpu = dry_run(spec, 1);
  const MemoryLedger& measured = real.ranks[1].rest;
  CHECK(measured.peak_total() == as_cuda.rest.peak_total());
  CHECK(measured.peak(MemoryUse::workspace) == as_cuda.rest.peak(MemoryUse::workspace));
  CHECK(measured.peak(MemoryUse::activation) == as_cpu.rest.peak(MemoryUse::activation));
  CHECK(measured.peak_total() != as_cpu.rest.peak_total());
}

TEST_CASE("20 steps of a GPT on a GPU have the CPU's losses to 1e-4", "[cuda][training]") {
  TrainingSpec spec = on_gpu(1);
  spec.steps = 20;
  const TrainingResult gpu = run_training(spec);
  spec.device = DeviceKind::cpu;
  spec.backends = {};
  const TrainingResult cpu = run_training(spec);
  spec.engine.optimizer.lr *= 1.1;  // the twin: another training
  const TrainingResult other = run_training(spec);
  REQUIRE(gpu.steps.size() == 20);
  bool differs = false;
  for (size_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    CHECK(std::abs(gpu.steps[i].loss - cpu.steps[i].loss) <= 1e-4 * cpu.steps[i].loss);
    differs =
        differs || std::abs(other.steps[i].loss - cpu.steps[i].loss) > 1e-4 * cpu.steps[i].loss;
  }
  CHECK(differs);
}

TEST_CASE("ranks on two GPUs without peer access have the bits of ranks on one",
          "[cuda][training]") {
  if (test_gpus().gpus.size() < 2) SKIP("this machine has one GPU");
  TrainingSpec spec = on_gpu(3, {0, 1});
  spec.engine.stage = StageKind::zero3;
  const TrainingResult two = run_training(spec);
  spec.backends = on_test_gpus({0});
  const TrainingResult one = run_training(spec);
  for (size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(two.steps[i].loss == one.steps[i].loss);
    CHECK(two.steps[i].grad_norm == one.steps[i].grad_norm);
  }
}

TEST_CASE("a GPU saves and loads the bytes of a checkpoint of the CPU", "[cuda][training]") {
  struct Case {
    CheckpointWrites writes;
    bool offload;
  };
  const auto [writes, offload] =
      GENERATE(Case{CheckpointWrites::still, false}, Case{CheckpointWrites::snapshot, true});
  CAPTURE(name(writes), offload);
  const ScratchFolder scratch;
  GptTrainingSpec spec = on_gpu(2);
  spec.engine.stage = StageKind::zero3;
  spec.engine.offload_optimizer = offload ? OffloadDevice::cpu : OffloadDevice::none;
  spec.checkpoint.save_every = 1;
  GptTrainingSpec cpu = spec;
  cpu.device = DeviceKind::cpu;
  cpu.backends = {};
  cpu.checkpoint.folder = scratch.path("cpu");
  run_training(cpu);
  const std::string saved = checkpoint_path(cpu.checkpoint.folder, 3);
  CHECK(data_files(load_and_save(spec, saved, scratch.path("loaded"))) == data_files(saved));

  spec.checkpoint.folder = scratch.path("gpu");
  spec.checkpoint.writes = writes;
  const TrainingResult whole = run_training(spec);
  spec.checkpoint.folder = spec.checkpoint.resume = scratch.path("parts");
  for (spec.steps = 1; spec.steps <= 3; ++spec.steps) run_training(spec);
  spec.steps = 3;
  CHECK(data_files(checkpoint_path(scratch.path("parts"), 3)) ==
        data_files(checkpoint_path(scratch.path("gpu"), 3)));
  for (const int rank : {0, 1}) {
    CHECK(whole.ranks[size_t(rank)].host.peak_total() == dry_run(spec, rank).host.peak_total());
    CHECK(whole.ranks[size_t(rank)].rest.peak_total() == dry_run(spec, rank).rest.peak_total());
  }
}
