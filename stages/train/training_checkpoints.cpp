#include "stages/train/training_checkpoints.h"

#include "stages/checkpoint/agreement.h"

namespace zl {

TrainingCheckpoints::TrainingCheckpoints(Trainer& trainer,
                                         std::function<void(const CheckpointRecord&)> saved)
    : trainer_(trainer), options_(trainer.spec().checkpoint), saved_(std::move(saved)) {
  loaded_ = load_checkpoint(trainer.engine(), trainer.model(), options_, trainer.position().data);
  if (loaded_) trainer.restore(loaded_->position);
  if (!options_.saves()) return;
  require_input(options_.keep >= 1, "at least one checkpoint must be kept, not ", options_.keep);
  on_all_ranks(trainer.comm(), "checkpoint folder", [&] {
    if (trainer.comm().rank() == 0) folder_.emplace(options_, trainer.steps());
  });
}

void TrainingCheckpoints::save() {
  commit();
  const TrainingSpec& spec = trainer_.spec();
  const bool needs_device = options_.writes == CheckpointWrites::still && spec.backends &&
                            !trainer_.memory().backend().host_addressable();
  if (needs_device && !device_) device_ = spec.backends(trainer_.comm().rank()).device;
  saving_ = std::make_unique<CheckpointSave>(
      SavedRun{trainer_.engine(), trainer_.model(), trainer_.host(), device_.get()}, options_,
      trainer_.position());
  if (options_.writes == CheckpointWrites::wait) commit();
}

void TrainingCheckpoints::commit() {
  if (!saving_) return;
  const CheckpointRecord record = saving_->commit();
  saving_.reset();
  if (saved_ && trainer_.comm().rank() == 0) saved_(record);
}

void TrainingCheckpoints::after_backward() {
  if (options_.writes == CheckpointWrites::still &&
      trainer_.engine().is_gradient_accumulation_boundary())
    commit();
}

void TrainingCheckpoints::after_step() {
  if (!options_.saves()) return;
  const TrainingSpec& spec = trainer_.spec();
  const bool ends = spec.interrupted && spec.interrupted();
  const bool written = !saving_ || saving_->written();
  bool any_ends = false, all_written = true;
  for (const std::string& rank : trainer_.comm().all_gather_object(
           {ends ? 'e' : '-', written ? 'w' : '-'}, "checkpoint progress")) {
    any_ends |= rank[0] == 'e';
    all_written &= rank[1] == 'w';
  }
  if (saving_ && all_written) commit();
  const int64_t step = trainer_.steps();
  if (any_ends || step % options_.save_every == 0 || step == spec.steps) save();
  if (!any_ends || step == spec.steps) return;
  commit();
  throw Interrupted();
}

void TrainingCheckpoints::at_end() { commit(); }

}  // namespace zl
