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
// full_parameters.h and gradient_reductions.h say until when. Updated parameters are then waited
// for before their unit's next forward pass.
//
// Each recorded forward pass of a unit adds one to a counter, each backward pass subtracts one. At
// zero the unit's gradient is complete, also if the unit runs twice, a parameter is unused or a
// weight is tied.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "nn/unit.h"
#include "stages/numerics/nonfinite.h"
#include "stages/schedule/full_parameters.h"
#include "stages/schedule/gradient_reductions.h"
#include "stages/schedule/input_keepers.h"

namespace zl {

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
  EventStream& events() { return stage_.memory().events(); }
  void enter(UnitState& u, const char* event);
  void leave();
  void gradient_complete(UnitState& u);
  void reduce_earlier();
  void reduce_across();
  void update(UnitState& u, const Update& step);
  void gather_updated();

  Stage& stage_;
  FullParameters parameters_;
  GradientReductions reductions_;
  NonfiniteSearch nonfinite_;
  InputKeeper keep_input_;
  Bucket updated_;
  bool last_micro_batch_ = true, backward_runs_ = false;
  int64_t micro_batch_ = 0;                // counts backward()
  std::vector<const UnitState*> running_;  // units whose passes are under way, innermost last
};

}  // namespace zl
