// Checkpoints of a run whose optimizer state is on disk.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/predict/dry_run.h"
#include "stages/predict/prediction_rows.h"
#include "tests/stages/checkpoint/checkpoint_run.h"
#include "tests/tensor/io/swap_case.h"

using namespace zl;
using namespace zl::test;

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
  const StageKind stage = GENERATE(StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const auto [precision, writes] = GENERATE(std::pair{Dtype::f32, CheckpointWrites::still},
                                            std::pair{Dtype::bf16, CheckpointWrites::wait},
                                            std::pair{Dtype::f16, CheckpointWrites::snapshot});
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

TEST_CASE("where rank 0 writes for all, state on disk is sent to it", "[stages]") {
  const ScratchFolder scratch;
  GptTrainingSpec spec =
      with_offload(checkpoint_spec(scratch.path("all"), StageKind::zero2, 3), OffloadDevice::nvme);
  run_training(spec);
  spec.checkpoint.folder = scratch.path("rank0");
  spec.checkpoint.rank0_writes = true;
  run_training(spec);
  CHECK(data_files(checkpoint_path(scratch.path("rank0"), 3)) ==
        data_files(checkpoint_path(scratch.path("all"), 3)));
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
