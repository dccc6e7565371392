// Reading a whole checkpoint and comparing it with its checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stages/checkpoint/manifest.h"
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

}  // namespace zl
