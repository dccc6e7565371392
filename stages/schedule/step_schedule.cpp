#include "stages/schedule/step_schedule.h"

#include <cmath>
#include <utility>

#include "optim/clip.h"
#include "stages/numerics/gradient_norm.h"
#include "tensor/kernels.h"

namespace zl {

// ---- full parameters -------------------------------------------------------------------------

void unshard(Stage& stage, UnitState& u) {
  if (u.parameters == ParameterState::sharded) {
    u.parameters = ParameterState::unsharding;
    u.unshard_work = stage.unshard(u);
  }
  if (u.parameters == ParameterState::unsharding) {
    u.unshard_work.wait();
    require(u.full_parameter.defined(), "unshard: unit ", u.name(), " has no full_parameter");
    u.parameters = ParameterState::unsharded;
    u.bind_parameters(u.full_parameter);
  }
}

void reshard(Stage& stage, UnitState& u) {
  if (!u.parameter_shard.defined()) return;  // this stage replicates parameters
  u.bind_parameters({});
  stage.reshard(u);
  u.parameters = ParameterState::sharded;
}

// ---- the passes of a unit --------------------------------------------------------------------

StepSchedule::StepSchedule(Stage& stage) : stage_(stage), nonfinite_(stage) {}

void StepSchedule::enter(UnitState& u, const char* event) {
  stage_.announce(u, event);
  running_.push_back(&u);
}

// Events that follow belong to the unit around the one that has ended.
void StepSchedule::leave() {
  running_.pop_back();
  events().set_unit(running_.empty() ? "" : running_.back()->name());
}

void StepSchedule::before_forward(Unit& unit, bool recorded) {
  UnitState& u = state(unit);
  if (recorded) ++u.forward_passes;
  enter(u, "before_forward");
  unshard(stage_, u);
}

void StepSchedule::after_forward(Unit& unit) {
  UnitState& u = state(unit);
  stage_.announce(u, "after_forward");
  // Backward needs root at once: it begins with root's output head. A unit that runs inside itself
  // is still needed too.
  const bool needed = (unit.index == 0 && u.forward_passes > 0) || unit.running > 0;
  if (!needed) reshard(stage_, u);
  leave();
}

void StepSchedule::before_backward(Unit& unit) {
  UnitState& u = state(unit);
  enter(u, "before_backward");
  unshard(stage_, u);
  if (std::exchange(u.in_backward, true)) return;  // an earlier pass of this micro-batch
  require(u.completed_in != micro_batch_, "unit ", u.name(),
          " runs backward after its gradient was complete; a unit that is used inside several "
          "checkpointed units cannot count its passes: leave one of them without checkpointing");
  stage_.before_backward(u);
  require(u.full_gradient.defined(), "before_backward: unit ", u.name(), " has no full_gradient");
  if (u.full_gradient.dtype() != stage_.options().dtype)
    u.backward_gradient = Tensor::zeros(stage_.memory(), MemoryUse::gradient, {u.partition.full()},
                                        stage_.options().dtype);
  u.bind_gradients(u.backward_gradient.defined() ? u.backward_gradient : u.full_gradient);
}

void StepSchedule::after_backward(Unit& unit) {
  UnitState& u = state(unit);
  if (--u.forward_passes == 0) gradient_complete(u);
  stage_.announce(u, "after_backward");
  if (unit.running == 0) reshard(stage_, u);
  leave();
}

void StepSchedule::gradient_complete(UnitState& u) {
  u.in_backward = false;
  u.completed_in = micro_batch_;
  if (u.partition.full() == 0) return;
  nonfinite_.check(u);
  u.bind_gradients({});
  if (u.backward_gradient.defined()) {
    kernel::accumulate(u.backward_gradient, u.full_gradient);
    u.backward_gradient = {};
  }
  u.reduces_with_last = !stage_.reduces_every_micro_batch() && !last_micro_batch_;
  if (u.reduces_with_last) return;
  finished_.add(u);
  if (finished_.elements >= stage_.options().reduce_bucket_size) reduce_bucket();
}

// ---- buckets ---------------------------------------------------------------------------------

void StepSchedule::Bucket::add(UnitState& u) {
  units.push_back(&u);
  elements += u.partition.full();
}

void StepSchedule::reduce_bucket() {
  const Bucket bucket = std::exchange(finished_, {});
  std::vector<Work> works;
  stage_.comm().begin_group();
  for (UnitState* u : bucket.units) {
    stage_.announce(*u, "reduce");
    works.push_back(stage_.reduce_gradient(*u));
  }
  stage_.comm().end_group();
  for (size_t i = 0; i < works.size(); ++i) {
    events().set_unit(bucket.units[i]->name());
    works[i].wait();
    stage_.finish_reduction(*bucket.units[i]);
  }
}

// Reduces the units that are left. After the last micro-batch, a second bucket reduces the units
// whose gradient comes from earlier micro-batches of the step only.
void StepSchedule::reduce_rest() {
  if (!finished_.units.empty()) reduce_bucket();
  if (!last_micro_batch_) return;
  for (size_t i = stage_.units().size(); i-- > 0;)
    if (std::exchange(stage_.units()[i].reduces_with_last, false)) finished_.add(stage_.units()[i]);
  if (!finished_.units.empty()) reduce_bucket();
}

void StepSchedule::gather_bucket() {
  const Bucket bucket = std::exchange(updated_, {});
  std::vector<Work> works;
  stage_.comm().begin_group();
  for (UnitState* u : bucket.units) {
    events().set_unit(u->name());
    works.push_back(stage_.after_update(*u));
  }
  stage_.comm().end_group();
  for (Work& work : works) work.wait();
}

// ---- a step ----------------------------------------------------------------------------------

void StepSchedule::backward(Tape& tape, const Var& loss, double scale, bool last) {
  last_micro_batch_ = last;
  ++micro_batch_;
  events().set_phase("backward");
  nonfinite_.begin_micro_batch();
  Tensor seed = activation_like(loss.value(), {1});
  kernel::fill(scale, seed);
  tape.backward(loss, std::move(seed));
  reduce_rest();
  events().set_unit("");
  nonfinite_.end_micro_batch();
}

StepResult StepSchedule::step(const StepInput& input) {
  events().set_phase("step");
  StepResult result;
  const double divisor = input.micro_batches * input.scale;
  result.grad_norm = gradient_norm(stage_) / divisor;
  if (std::isnan(result.grad_norm))
    result.grad_norm = std::nan("");  // one bit pattern for all NaNs
  const bool finite = std::isfinite(result.grad_norm);
  if (!finite) result.nonfinite = nonfinite_.find();
  nonfinite_.clear();
  result.skipped = !finite && stage_.options().skip_nonfinite;
  const Update update{input.lr, float(clip_factor(result.grad_norm, input.max_norm) / divisor)};
  for (UnitState& u : stage_.units()) {
    stage_.announce(u, "update");
    if (result.skipped)
      u.optimizer->skip_update(u.kept_parameter().memory(), stage_.gradient_shard(u));
    else
      this->update(u, update);
    stage_.clear_gradient(u);
  }
  if (!updated_.units.empty()) gather_bucket();
  events().set_unit("");
  return result;
}

void StepSchedule::update(UnitState& u, const Update& step) {
  stage_.update(u, step);
  if (u.partition.full() > 0) updated_.add(u);
  if (updated_.elements >= stage_.options().allgather_bucket_size) gather_bucket();
}

}  // namespace zl
