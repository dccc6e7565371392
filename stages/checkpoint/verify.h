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

// Reads a tensor of any size in chunks, and passes each to `take` with its first byte. Returns the
// CRC-32C of all. Throws InputError if it cannot be read.
uint32_t read_tensor(const SafetensorsFile& file, const SafetensorsEntry& entry,
                     const std::function<void(int64_t at, std::span<const std::byte>)>& take);

// What is wrong with a tensor whose checksum is `crc`, as a sentence; "" if nothing is.
std::string damage(const SafetensorsFile& file, const SafetensorsEntry& entry,
                   const ManifestFile& expected, uint32_t crc);

// What is wrong with a checkpoint, one sentence each, naming file, tensor and range; empty:
// nothing. `progress` is called with the bytes read and the bytes of all files [B]; it may throw.
std::vector<std::string> verify_checkpoint(
    const std::string& checkpoint, const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace zl
