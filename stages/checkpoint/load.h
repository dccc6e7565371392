// Loading a checkpoint into an engine of any stage and number of ranks, and reading one to compare
// it with its checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/model.h"
#include "stages/checkpoint/manifest.h"
#include "stages/engine.h"
#include "tensor/io/safetensors.h"

namespace zl {

// Reads all tensors of a file in chunks, and passes each chunk to `take`, with its first byte in
// the tensor. Returns what differs from the checksums, one sentence each, naming file, tensor and
// range. Throws InputError if the file cannot be read.
using TakeChunk =
    std::function<void(const SafetensorsEntry&, int64_t at, std::span<const std::byte>)>;
std::vector<std::string> read_and_verify(const SafetensorsFile& file, const ManifestFile& expected,
                                         const TakeChunk& take);

// What is wrong with a checkpoint, in such sentences; empty: nothing. `progress` is called with the
// bytes read and the bytes of all files [B]; it may throw.
std::vector<std::string> verify_checkpoint(
    const std::string& checkpoint, const std::function<void(int64_t, int64_t)>& progress = {});

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
