// Loading a checkpoint into an engine of any stage and number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/model.h"
#include "stages/checkpoint/checkpoint.h"
#include "stages/engine.h"

namespace zl {

struct LoadedCheckpoint {
  std::string folder;
  RunPosition position;
  std::vector<std::string> notes;  // sentences for the user: checkpoints that are broken, settings
                                   // that have changed
};

// Finds options.resume and restores weights, optimizer and loss scaler; rank 0 chooses. Nothing if
// there is no checkpoint. Every rank must call it: each reads all files once, tensor by tensor,
// compares their checksums, and keeps its pieces. `data` is this run's BatchSource::identity().
// Throws InputError if the checkpoint is damaged, naming file, tensor and range, or is one of
// another model, optimizer or data set; then the engine must not be used any more.
std::optional<LoadedCheckpoint> load_checkpoint(Engine& engine, const Model& model,
                                                const CheckpointOptions& options,
                                                const std::string& data);

}  // namespace zl
