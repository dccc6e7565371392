// The planner: one rank's training steps without data, on the meta backend. The real model, stage
// and engine run; nothing is computed or moved.
#pragma once

#include "stages/train/trainer.h"

namespace zl {

// Rank `rank` of any number: memory in steady state and at the peak, and the traffic of one step.
// Makes `steps` steps of at most `micro_batches` micro-batches: peaks repeat after three of each,
// but the traffic is the real step's only if it has no more. Throws OutOfMemory with the spec's
// limits. `at_start`: called before the first step. `listener`: sees all events, from the first on.
RankReport dry_run(const TrainingSpec& spec, int rank, int64_t micro_batches = 3,
                   const std::function<void(Trainer&)>& at_start = {},
                   const EventStream::Listener& listener = {}, int steps = 3);

// Whether the model does what the closed formulas assume: every unit runs once per micro-batch, in
// the order of the list, inside root; and inputs that leave the device are in checkpointed_rows.
bool formulas_apply(const TrainingSpec& spec);

}  // namespace zl
