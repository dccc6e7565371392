// A student's stage as the checks run it: passes every call on, and records what it did.
#pragma once

#include <memory>

#include "stages/stage.h"
#include "tutorials/exercises/judge/late_communicator.h"
#include "tutorials/exercises/stages/stage_calls.h"

namespace zl {

// The student's ZL_STAGE. Its file is compiled with this name for stage_zero1, stage_zero2 and
// stage_zero3, so that the library's stages do not take its place.
StageFile students_stage();

}  // namespace zl

namespace zl::exercises {

// What one rank's stage did. It must outlive the rank.
struct WatchedRank {
  std::unique_ptr<LateCommunicator> comm;  // the stage's
  std::vector<StageCall> calls;
  // The rank's memory by its events: of the run, and of the call that is under way. A stage can
  // reach the rank's ledger, but not these.
  MemoryLedger memory, call_memory;
};

// Both stages hold the same units, but only this one's UnitStates are used.
class WatchedStage final : public Stage {
 public:
  WatchedStage(WatchedRank& watched, std::vector<Unit>& units, Communicator& comm,
               Memories memories, const Options& options);

  void allocate(UnitState& u) override;
  bool reduces_every_micro_batch() const override;
  void before_backward(UnitState& u) override;
  Work reduce_gradient(UnitState& u) override;
  void after_reduce(UnitState& u) override;
  void update(UnitState& u, const Update& step) override;
  Work after_update(UnitState& u) override;
  Work unshard(UnitState& u) override;
  void reshard(UnitState& u) override;

 private:
  class Watch;
  template <class Body>
  auto run(StageFunction function, const UnitState& u, const Body& body);
  const EventStream& events() const { return watched_.comm->transport().events(); }
  Work started_by(Work (Stage::*function)(UnitState&), StageFunction named, UnitState& u);

  WatchedRank& watched_;
  std::unique_ptr<Stage> students_;
};

}  // namespace zl::exercises
