#include "stages/schedule/step_schedule.h"

#include <cmath>
#include <utility>

#include "optim/clip.h"
#include "stages/steady_state.h"
#include "tensor/kernels.h"

namespace zl {

// ---- full parameters -------------------------------------------------------------------------

namespace {

// In the other stages full parameters always exist, but may be stale while an all-gather is in
// flight.
bool shards_parameters(const UnitState& u) { return u.parameter_shard.defined(); }

void start_unshard(Stage& stage, UnitState& u) {
  u.parameters = ParameterState::unsharding;
  u.unshard_work = stage.unshard(u);
}

size_t first_kept(const std::vector<UnitState>& units, const Overlap& overlap) {
  std::vector<int64_t> sizes;
  for (const UnitState& u : units) sizes.push_back(u.partition.full());
  return first_kept_block(sizes, overlap);
}

}  // namespace

void unshard(Stage& stage, UnitState& u) {
  if (u.parameters == ParameterState::sharded) start_unshard(stage, u);
  if (u.parameters == ParameterState::unsharding) {
    u.unshard_work.wait();
    if (!u.full_parameter.defined()) refuse("unshard: unit ", u.name(), " has no full_parameter");
    u.parameters = ParameterState::unsharded;
    u.bind_parameters(u.full_parameter);
  }
}

void reshard(Stage& stage, UnitState& u) {
  if (!shards_parameters(u) || u.parameters == ParameterState::sharded) return;
  u.unshard_work.wait();  // of a unit that was unsharded unnecessarily
  u.bind_parameters({});
  stage.reshard(u);
  u.parameters = ParameterState::sharded;
}

// Root is first in both directions: after the last of the other units, the next one is root.
void StepSchedule::unshard_and_prefetch(UnitState& u, int direction) {
  unshard(stage_, u);
  if (!shards_parameters(u)) return;
  const Overlap& overlap = stage_.options().overlap;
  const int units = int(units_.size());
  const auto next = [=](const UnitState& v) { return (v.unit->index + direction + units) % units; };
  int64_t ahead = 0;
  for (int i = next(u); i != 0 && ahead < overlap.prefetch_bucket_size;
       i = next(units_[size_t(i)])) {
    UnitState& v = units_[size_t(i)];
    if (!shards_parameters(v)) continue;
    const int64_t n = v.partition.full();
    if (v.parameters == ParameterState::sharded) {
      if (n > overlap.max_live_parameters - live()) return;
      events_.set_unit(v.name(), "prefetch");
      start_unshard(stage_, v);
    }
    ahead += n;
  }
}

int64_t StepSchedule::live() const {
  int64_t n = 0;
  for (const UnitState& u : units_)
    if (shards_parameters(u) && u.parameters != ParameterState::sharded) n += u.partition.full();
  return n;
}

// Backward needs root at once, because it begins with root's output head. A unit that runs inside
// itself is still needed too.
void StepSchedule::reshard_after_forward(UnitState& u) {
  const bool kept = u.unit->index == 0 || size_t(u.unit->index) >= first_kept_;
  if (u.unit->running == 0 && !(kept && u.forward_passes > 0)) reshard(stage_, u);
}

// ---- the passes of a unit --------------------------------------------------------------------

StepSchedule::StepSchedule(Stage& stage)
    : stage_(stage),
      events_(stage.memory().events()),
      units_(stage.units()),
      first_kept_(first_kept(units_, stage.options().overlap)),
      nonfinite_(stage) {}

void StepSchedule::enter(UnitState& u, const char* event) {
  events_.set_unit(u.name(), event);
  running_.push_back(&u);
}

// Events that follow belong to the unit around the one that has ended.
void StepSchedule::leave() {
  running_.pop_back();
  events_.set_unit(running_.empty() ? "" : running_.back()->name());
}

// It stays, or a copy waits on the host and is copied back. Activation checkpointing's part of
// ZeRO-R: Rajbhandari et al. 2020 (arXiv:1910.02054), section 6.1.
Kept StepSchedule::keep_input(Tensor x) {
  Memory &device = x.memory(), &waits_in = stage_.memory_of(MemoryUse::activation);
  if (&waits_in == &device) return UnitObserver::keep_input(std::move(x));
  const auto copied = [](const Tensor& from, Memory& to) {
    const Tensor copy = Tensor::empty(to, MemoryUse::activation, from.shape(), from.dtype());
    kernel::copy(from, copy);
    return copy;
  };
  return [copied, &device, copy = copied(x, waits_in)] { return copied(copy, device); };
}

void StepSchedule::before_forward(Unit& unit, bool recorded) {
  UnitState& u = stage_.state(unit);
  if (recorded) ++u.forward_passes;
  enter(u, "before_forward");
  if (backward_runs_)
    unshard(stage_, u);  // a unit inside a checkpointed one: the order of the pass is unknown
  else
    unshard_and_prefetch(u, 1);
  events_.set_unit(u.name());
}

// After root's, what the pass did not use is resharded too. Units that wait for backward stay.
void StepSchedule::after_forward(Unit& unit) {
  UnitState& u = stage_.state(unit);
  events_.set_unit(u.name(), "after_forward");
  reshard_after_forward(u);
  if (unit.index == 0 && unit.running == 0)
    for (UnitState& each : units_) reshard_after_forward(each);
  leave();
}

void StepSchedule::before_backward(Unit& unit) {
  UnitState& u = stage_.state(unit);
  enter(u, "before_backward");
  unshard_and_prefetch(u, -1);
  events_.set_unit(u.name());
  if (std::exchange(u.in_backward, true)) return;  // an earlier pass of this micro-batch
  if (u.completed_in == micro_batch_)
    refuse("unit ", u.name(),
           " runs backward after its gradient was complete; a unit that is used inside several "
           "checkpointed units cannot count its passes: leave one of them without checkpointing");
  stage_.before_backward(u);
  if (!u.full_gradient.defined())
    refuse("before_backward: unit ", u.name(), " has no full_gradient");
  stage_.begin_backward(u);
}

void StepSchedule::after_backward(Unit& unit) {
  UnitState& u = stage_.state(unit);
  if (--u.forward_passes == 0) gradient_complete(u);
  events_.set_unit(u.name(), "after_backward");
  if (unit.running == 0) reshard(stage_, u);
  leave();
}

void StepSchedule::gradient_complete(UnitState& u) {
  u.in_backward = false;
  u.completed_in = micro_batch_;
  if (u.partition.full() == 0) return;
  nonfinite_.check(u);
  stage_.end_backward(u);
  u.reduces_with_last =
      !last_micro_batch_ && !stage_.reduces_every_micro_batch() && !stage_.options().reproducible;
  if (!u.reduces_with_last) reduce(u);
}

// ---- reductions ------------------------------------------------------------------------------

namespace {

int64_t elements(const std::vector<UnitState*>& bucket) {  // [n] padded
  int64_t n = 0;
  for (const UnitState* u : bucket) n += u->partition.full();
  return n;
}

}  // namespace

void StepSchedule::reduce(UnitState& u) {
  complete_.push_back(&u);
  if (elements(complete_) >= stage_.options().reduce_bucket_size) reduce_bucket();
}

void StepSchedule::reduce_bucket() {
  wait_for_reductions();
  in_flight_.swap(complete_);
  stage_.comm().begin_group();
  for (UnitState* u : in_flight_) {
    events_.set_unit(u->name(), "reduce");
    u->reduce_work = stage_.reduce_gradient(*u);
  }
  stage_.comm().end_group();
  if (!stage_.options().overlap.overlap_comm) wait_for_reductions();
}

void StepSchedule::wait_for_reductions() {
  for (UnitState* u : in_flight_) {
    events_.set_unit(u->name());
    u->reduce_work.wait();
    stage_.after_reduce(*u);
  }
  in_flight_.clear();
}

void StepSchedule::finish_reductions() {
  if (!complete_.empty()) reduce_bucket();
  wait_for_reductions();
}

// ---- a step ----------------------------------------------------------------------------------

void StepSchedule::backward(Tape& tape, const Var& loss, double scale, bool last) {
  last_micro_batch_ = last;
  ++micro_batch_;
  events_.set_phase("backward");
  nonfinite_.begin_micro_batch();
  Tensor seed = activation_like(loss.value(), {1});
  kernel::fill(scale, seed);
  backward_runs_ = true;
  tape.backward(loss, std::move(seed));
  backward_runs_ = false;
  for (UnitState& u : units_) reshard(stage_, u);  // what was unsharded ahead and not used
  finish_reductions();
  if (last) reduce_rest();
  events_.set_unit("");
  nonfinite_.end_micro_batch();
}

// Units whose gradient comes from earlier micro-batches of the step only. Then what the stage adds
// once per step, also of such units: every rank makes the same calls.
void StepSchedule::reduce_rest() {
  for (size_t i = units_.size(); i-- > 0;)
    if (std::exchange(units_[i].reduces_with_last, false)) reduce(units_[i]);
  finish_reductions();
  for (size_t i = units_.size(); i-- > 0;) {
    UnitState& u = units_[i];
    events_.set_unit(u.name());
    if (u.partition.full() > 0) stage_.reduce_across(u).wait();
  }
}

double StepSchedule::divisor(double scale) const {
  const Options& o = stage_.options();  // reproducible reductions do not divide by the ranks
  return double(o.reproducible ? o.accumulation * stage_.comm().size() : o.accumulation) * scale;
}

StepResult StepSchedule::measure_gradient(double scale) {
  events_.set_phase("step");
  StepResult result;
  const double norm = gradient_norm(stage_) / divisor(scale);
  result.grad_norm = std::isnan(norm) ? std::nan("") : norm;  // one bit pattern for all NaNs
  const bool finite = std::isfinite(result.grad_norm);
  if (!finite) result.nonfinite = nonfinite_.find();
  nonfinite_.clear();
  result.skipped = !finite && skips_nonfinite(stage_.options());
  return result;
}

void StepSchedule::update(const StepResult& gradient, double lr, double scale) {
  const double max_norm = stage_.options().gradient_clipping;
  const Update step{lr, float(clip_factor(gradient.grad_norm, max_norm) / divisor(scale))};
  for (UnitState& u : units_) {
    events_.set_unit(u.name(), "update");
    if (gradient.skipped)
      u.optimizer->skip_update(u.kept_parameter().memory(), stage_.gradient_shard(u));
    else
      update(u, step);
    kernel::fill(0, u.full_gradient.defined() ? u.full_gradient : u.gradient_shard);
  }
  if (!updated_.empty()) gather_updated();
  events_.set_unit("");
}

void StepSchedule::update(UnitState& u, const Update& step) {
  if (u.parameters == ParameterState::unsharding) unshard(stage_, u);  // not used since its update
  stage_.update(u, step);
  if (u.partition.full() > 0) updated_.push_back(&u);
  if (elements(updated_) >= stage_.options().allgather_bucket_size) gather_updated();
}

void StepSchedule::gather_updated() {
  const Bucket bucket = std::exchange(updated_, {});
  stage_.comm().begin_group();
  for (UnitState* u : bucket) {
    events_.set_unit(u->name());
    u->unshard_work = stage_.after_update(*u);
    if (u->unshard_work.pending()) u->parameters = ParameterState::unsharding;
  }
  stage_.comm().end_group();
  if (stage_.options().overlap.overlap_comm) return;
  for (UnitState* u : bucket)
    if (u->parameters == ParameterState::unsharding) unshard(stage_, *u);
}

}  // namespace zl
