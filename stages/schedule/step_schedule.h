// When a stage's functions are called, and where its communications are waited for.
//
// One step, in order:
//   forward   before a unit: unshard. After it: reshard, but root stays until the end of backward.
//   backward  before a unit's first pass: unshard, before_backward. After its last pass its
//             gradient is complete and joins a bucket. A full bucket is reduced, and what is left
//             at the end. After each pass: reshard. After the last micro-batch: reduce_across.
//   step      the gradient norm. For each unit: update, clear the gradient; updated units join a
//             bucket, whose after_update runs when it is full, and at the end.
// Each communication is waited for at once, unless Options::overlap lets it be in flight:
// FullParameters and StepSchedule::in_flight_ say until when. Updated parameters are then waited
// for before their unit's next forward pass.
//
// Each recorded forward pass of a unit adds one to a counter, each backward pass subtracts one. At
// zero the unit's gradient is complete, also if the unit runs twice, a parameter is unused or a
// weight is tied.
//
// tutorials/reference/internals.md follows one step through all files, function by function.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "nn/unit.h"
#include "stages/numerics/gradient_norm.h"
#include "stages/schedule/input_keepers.h"
#include "stages/stage.h"

namespace zl {

// Starts the all-gather if there is none, waits for it, and binds the parameters.
void unshard(Stage& stage, UnitState& u);
void reshard(Stage& stage, UnitState& u);

// When units are unsharded and resharded: right before and after their use, or as
// Options::overlap allows.
//
// Units are used in the order of their list: forward 1, 2, …, L inside root, backward L, …, 1. A
// model that uses them otherwise is correct too, but unshards units unnecessarily. All points at
// which an all-gather is issued or waited for depend on sizes alone, never on when it completes. So
// peaks of memory are exact, and all ranks make the same calls.
class FullParameters {
 public:
  explicit FullParameters(Stage& stage);  // must outlive this

  // `u` is about to be used: unshards it, then starts to unshard the units that come next.
  void before_forward(UnitState& u) { unshard_and_prefetch(u, 1); }
  void before_backward(UnitState& u) { unshard_and_prefetch(u, -1); }
  // `u` has been used, and is not used any more in this pass.
  void after_forward(UnitState& u);
  void after_backward(UnitState& u);
  // A pass has ended: reshards what it did not use. Units that wait for backward stay.
  void end_forward();
  void end_backward();

 private:
  // `direction`: 1 or -1, in which the units of the list come next.
  void unshard_and_prefetch(UnitState& u, int direction);
  int64_t live() const;  // [n] of the units that are unsharded or unsharding

  Stage& stage_;
  std::vector<UnitState>& units_;
  const size_t first_kept_;  // blocks from here on stay unsharded between forward and backward
};

// Units whose communications are issued together: which gradients are reduced together, and which
// updated parameters are gathered.
struct Bucket {
  std::vector<UnitState*> units;
  int64_t elements = 0;  // [n] padded

  void add(UnitState& u) {
    units.push_back(&u);
    elements += u.partition.full();
  }
};

struct StepInput {
  double lr = 0;
  double max_norm = 0;    // the largest norm of the mean gradient; 0: any
  double scale = 1;       // where backward started from: the loss scale
  int micro_batches = 1;  // A, of this step
};

struct StepResult {
  double grad_norm = 0;                        // of the mean gradient, before clipping
  bool skipped = false;                        // the norm was not finite: no rank updated anything
  std::optional<NonfiniteGradient> nonfinite;  // of such a norm; the same on every rank
};

class StepSchedule final : public UnitObserver {
 public:
  explicit StepSchedule(Stage& stage);  // must outlive the schedule

  // Backward through one micro-batch, starting from `scale`. `last`: step() comes next.
  void backward(Tape& tape, const Var& loss, double scale, bool last);
  // Updates the parameters by the mean gradient over ranks and micro-batches, clipped to max_norm,
  // and clears the gradients. The host waits for the norm; if that is not
  // finite, also for the search for the first gradient that is not.
  // `before_update` is called between the norm and the updates.
  StepResult step(const StepInput& input, const std::function<void()>& before_update = {});

  // Of the passes that follow. Empty: inputs stay where they are.
  void keep_inputs(InputKeeper keeper) { keep_input_ = std::move(keeper); }

  void before_forward(Unit& unit, bool recorded) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  Kept keep_input(Tensor x) override;

 private:
  struct Reduction {
    UnitState* unit;
    Work work;
  };

  EventStream& events() { return stage_.memory().events(); }
  void enter(UnitState& u, const char* event);
  void leave();
  void gradient_complete(UnitState& u);
  void reduce(UnitState& u);  // its gradient is complete: reduces it when its bucket is full
  void reduce_bucket();
  void wait_for_reductions();
  void finish_reductions();  // reduces what is left; returns when every reduction has finished
  void reduce_earlier();
  void reduce_across();
  void update(UnitState& u, const Update& step);
  void gather_updated();

  Stage& stage_;
  FullParameters parameters_;
  NonfiniteSearch nonfinite_;
  InputKeeper keep_input_;
  Bucket complete_, updated_;  // gradients that are not reduced yet, parameters not gathered
  // Of one bucket. With overlap_comm they are in flight while backward fills the next bucket, and
  // are waited for before the next ones are issued, and at the end of backward. So at most two
  // buckets of full gradients exist at one time, beside root's.
  std::vector<Reduction> in_flight_;
  bool last_micro_batch_ = true, backward_runs_ = false;
  int64_t micro_batch_ = 0;                // counts backward()
  std::vector<const UnitState*> running_;  // units whose passes are under way, innermost last
};

}  // namespace zl
