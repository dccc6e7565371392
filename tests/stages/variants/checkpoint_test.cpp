// Checkpoints do not depend on the variant that saves them either.
#include <catch2/catch_test_macros.hpp>

#include "stages/checkpoint/checkpoint_folder.h"
#include "tests/stages/checkpoint/checkpoint_run.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("a checkpoint goes through every variant, and any number of ranks, without a change",
          "[stages]") {
  const ScratchFolder scratch;
  const std::string origin = trained(scratch, checkpoint_spec("", StageKind("hsdp"), 4));
  const DataFiles expected = data_files(origin);
  REQUIRE(expected.size() == 3);
  std::string last = origin;
  int round = 0;
  for (const bool one_by_one : {false, true})
    for (const StageKind stage : {StageKind::ddp, StageKind("hsdp"), StageKind("zero3_hpz"),
                                  StageKind("zero3_qwz"), StageKind("zero3_qgz"), StageKind::zero3})
      for (const int ranks : {4, 6}) {
        TrainingSpec spec = checkpoint_spec("", stage, ranks);
        spec.checkpoint.one_by_one = one_by_one;
        spec.checkpoint.writes = ranks == 6 ? CheckpointWrites::snapshot : CheckpointWrites::wait;
        CAPTURE(name(stage), ranks, one_by_one);
        last = load_and_save(spec, last, scratch.path(str("round", round++)));
        REQUIRE(data_files(last) == expected);
      }
  CHECK(data_files(trained(scratch, checkpoint_spec("", StageKind::zero3, 3))) != expected);
}
