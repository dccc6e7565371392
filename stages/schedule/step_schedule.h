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
// unshard_and_prefetch() and in_flight_ say until when. Updated parameters are then waited for
// before their unit's next forward pass.
//
// Units are used in the order of their list: forward 1, 2, …, L inside root, backward L, …, 1. A
// model that uses them otherwise is correct too, but unshards units unnecessarily. All points at
// which an all-gather is issued or waited for depend on sizes alone, never on when it completes. So
// peaks of memory are exact, and all ranks make the same calls.
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
#include "stages/stage.h"

namespace zl {

// Starts the all-gather if there is none, waits for it, and binds the parameters.
void unshard(Stage& stage, UnitState& u);
// Waits for an all-gather that was started unnecessarily, unbinds the parameters, and lets the
// stage free them. Nothing happens to replicated or sharded ones.
void reshard(Stage& stage, UnitState& u);

// What a step says about its gradient.
struct StepResult {
  double grad_norm = 0;                        // of the mean gradient, before clipping
  bool skipped = false;                        // the norm was not finite: no rank updated anything
  std::optional<NonfiniteGradient> nonfinite;  // of such a norm; the same on every rank
};

// Observes the passes of the stage's model. Every rank must run the same passes, and make the same
// calls of backward(), measure_gradient() and update().
class StepSchedule final : public UnitObserver {
 public:
  explicit StepSchedule(Stage& stage);  // must outlive the schedule

  // Backward through one micro-batch, starting from `scale`. `last`: the step comes next. When it
  // returns, no reduction is in flight, and no block is unsharded.
  void backward(Tape& tape, const Var& loss, double scale, bool last);
  // A step, in two parts. The norm of the mean gradient over ranks and micro-batches: the host
  // waits for it; if it is not finite, also for the search for the first gradient that is not.
  // `scale`: that of backward().
  StepResult measure_gradient(double scale);
  // Then updates the parameters by that gradient, clipped, unless it is skipped, and clears the
  // gradients. All-gathers of updated parameters may be in flight afterwards.
  void update(const StepResult& gradient, double lr, double scale);

  // The events of a pass, which run_unit() calls. A unit may run several times in a pass, and
  // inside itself.
  void before_forward(Unit& unit, bool recorded) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  // Of a checkpointed pass: stays, or waits on the host, as Options::cpu_checkpointing says.
  Kept keep_input(Tensor x) override;

 private:
  // Units whose communications are issued together: which gradients are reduced together, and
  // which updated parameters are gathered.
  using Bucket = std::vector<UnitState*>;

  // Between the two, events belong to `u`; then to the unit around it.
  void enter(UnitState& u, const char* event);
  void leave();
  // `u` is about to be used: unshards it, then starts to unshard the units that come next in
  // `direction`, 1 or -1, of the list.
  void unshard_and_prefetch(UnitState& u, int direction);
  int64_t live() const;  // [n] of the units that are unsharded or unsharding
  // Root stays until the end of backward, blocks from first_kept_ on until their backward pass.
  void reshard_after_forward(UnitState& u);
  // Once per micro-batch and unit: after the last of its backward passes.
  void gradient_complete(UnitState& u);
  void reduce(UnitState& u);  // its gradient is complete: reduces it when its bucket is full
  void reduce_bucket();
  void wait_for_reductions();
  void finish_reductions();  // reduces what is left; returns when every reduction has finished
  // With the last micro-batch: what only earlier ones used, and the stage's reduce_across().
  void reduce_rest();
  void update(UnitState& u, const Update& step);
  void gather_updated();               // the bucket of updated units
  double divisor(double scale) const;  // of the sum of the step's gradients

  Stage& stage_;
  EventStream& events_;
  std::vector<UnitState>& units_;
  const size_t first_kept_;  // blocks from here on stay unsharded between forward and backward
  NonfiniteSearch nonfinite_;
  Bucket complete_, updated_;  // gradients that are not reduced yet, parameters not gathered
  // Of one bucket. With overlap_comm they are in flight while backward fills the next bucket, and
  // are waited for before the next ones are issued, and at the end of backward. So at most two
  // buckets of full gradients exist at one time, beside root's.
  Bucket in_flight_;
  bool last_micro_batch_ = true, backward_runs_ = false;
  int64_t micro_batch_ = 0;                // counts backward()
  std::vector<const UnitState*> running_;  // units whose passes are under way, innermost last
};

}  // namespace zl
