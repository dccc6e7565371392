// Checkpoints do not depend on the variant that saves them either.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

namespace {

std::string trained(const ScratchFolder& scratch, TrainingSpec spec) {
  const std::string folder = scratch.path(str(name(spec.engine.stage), "-", spec.ranks));
  std::filesystem::remove_all(folder);
  spec.checkpoint.folder = folder;
  run_training(spec);
  return checkpoint_path(folder, spec.steps);
}

}  // namespace

TEST_CASE("zero3_hpz saves the bytes of zero3", "[stages]") {
  const ScratchFolder scratch;
  const auto files = [&](StageKind stage, int64_t micro_batches) {
    TrainingSpec spec = checkpoint_spec("", stage, 4);
    spec.engine.accumulation = micro_batches;
    return data_files(trained(scratch, spec));
  };
  CHECK(files(StageKind::zero3_hpz, 1) == files(StageKind::zero3, 1));
  CHECK(files(StageKind::zero3_hpz, 2) != files(StageKind::zero3, 1));  // the twin
}

TEST_CASE("a checkpoint goes through every variant, and any number of ranks, without a change",
          "[stages]") {
  const ScratchFolder scratch;
  const std::string origin = trained(scratch, checkpoint_spec("", StageKind::hsdp, 4));
  const DataFiles expected = data_files(origin);
  REQUIRE(expected.size() == 3);
  std::string last = origin;
  int round = 0;
  for (const bool rank0_writes : {false, true})
    for (const StageKind stage : {StageKind::ddp, StageKind::hsdp, StageKind::zero3_hpz,
                                  StageKind::zero3_qwz, StageKind::zero3_qgz, StageKind::zero3})
      for (const int ranks : {4, 6}) {
        TrainingSpec spec = checkpoint_spec("", stage, ranks);
        spec.checkpoint.rank0_writes = rank0_writes;
        spec.checkpoint.writes = ranks == 6 ? CheckpointWrites::snapshot : CheckpointWrites::wait;
        CAPTURE(name(stage), ranks, rank0_writes);
        last = load_and_save(spec, last, scratch.path(str("round", round++)));
        REQUIRE(data_files(last) == expected);
      }
  CHECK(data_files(trained(scratch, checkpoint_spec("", StageKind::zero3, 3))) != expected);
}
