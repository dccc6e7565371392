// The checkpoints of one rank of a training run: when it loads and saves.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/load.h"
#include "stages/checkpoint/save.h"
#include "stages/train/trainer.h"

namespace zl {

class TrainingCheckpoints {
 public:
  // Loads the checkpoint of spec.checkpoint.resume, if there is one, and prepares the folder.
  // `saved` is called on rank 0 for each checkpoint that is complete.
  TrainingCheckpoints(Trainer& trainer, std::function<void(const CheckpointRecord&)> saved);

  const std::optional<LoadedCheckpoint>& loaded() const { return loaded_; }
  // To be called after each backward pass: before an update, a save that must not see it is
  // committed.
  void after_backward();
  // To be called after each step: saves if it is time to. Throws Interrupted, after a save, if a
  // rank was asked to end.
  void after_step();
  // To be called after the last step: commits.
  void at_end();

 private:
  void save();
  void commit();

  Trainer& trainer_;
  const CheckpointOptions options_;
  std::function<void(const CheckpointRecord&)> saved_;
  std::optional<LoadedCheckpoint> loaded_;
  std::optional<CheckpointFolder> folder_;  // of rank 0
  std::unique_ptr<Backend> device_;         // for a thread that reads a GPU's memory
  std::unique_ptr<CheckpointSave> saving_;
};

}  // namespace zl
