// Checkpoints do not depend on the variant that saves them either.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "stages/schedule/step_schedule.h"
#include "stages/variants/groups.h"
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

namespace {

struct MidRun {
  StageKind stage;
  bool overlap = false;  // and rank 1 is late with its part of each all-gather
  bool loads = true;
};

// The norms of four steps, of which the third is the first with a learning rate above 0. After it,
// `checkpoint` is loaded.
std::vector<double> norms(const MidRun& run, const std::string& checkpoint) {
  TrainingSpec spec = checkpoint_spec("", run.stage, 4);
  spec.steps = 4;
  spec.engine.overlap.overlap_comm = run.overlap;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& trainer) {
    if (!run.overlap || trainer.comm().rank() != 1) return;
    trainer.comm().events().listen([](const Event& e) {
      if (e.kind == EventKind::unit && std::string_view(e.what) == "update")
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
    });
  };
  callbacks.after_step = [&](Trainer& trainer) {
    if (!run.loads || trainer.steps() != 3) return;
    Stage& stage = trainer.engine().stage();
    if (run.stage == StageKind("zero3_hpz"))
      for (UnitState& u : stage.units()) unshard(stage, u), reshard(stage, u);  // as an evaluation
    load_checkpoint(trainer.engine(), trainer.model(), {.resume = checkpoint},
                    trainer.position().data);
  };
  std::vector<double> all;
  for (const StepRecord& step : run_training(spec, callbacks).steps) all.push_back(step.grad_norm);
  return all;
}

}  // namespace

TEST_CASE("a checkpoint that is loaded between two steps is what the next one uses (DS #7606)",
          "[stages]") {
  const ScratchFolder scratch;
  TrainingSpec origin = checkpoint_spec("", StageKind::zero3, 4);
  origin.steps = 1;
  const std::string checkpoint = trained(scratch, origin);
  for (const StageKind stage : {StageKind("zero3_hpz"), StageKind::zero1, StageKind::zero2}) {
    const MidRun run{.stage = stage, .overlap = stage != StageKind("zero3_hpz")};
    CAPTURE(name(stage));
    const std::vector<double> seen = norms(run, checkpoint);
    CHECK(seen == norms({.stage = parent(stage)}, checkpoint));
    CHECK(seen != norms({.stage = parent(stage), .loads = false}, checkpoint));  // the twin
  }
}
