// Writes pieces of a run's state into the files of a checkpoint, by one rank.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stages/checkpoint/state_pieces.h"
#include "tensor/backend.h"
#include "tensor/io/file_calls.h"

namespace zl {

class PieceWriter {
 public:
  // Opens the files, which exist, in `folder`. `buffer`: host memory for values that the host
  // cannot read where they are, or undefined. All must outlive it. Throws OutputError.
  PieceWriter(FileCalls& calls, const std::string& folder, const std::vector<StateFile>& files,
              Tensor buffer);

  // Reads values of a device through `device` from now on, instead of the tensor's own backend.
  void read_through(Backend& device) { device_ = &device; }
  // Returns the CRC-32C of what it has written.
  uint32_t write(const StatePiece& piece);
  // Makes everything durable and closes the files.
  void finish();

 private:
  std::span<const std::byte> host_bytes(const Tensor& values);

  const std::vector<StateFile>& states_;
  std::vector<WrittenFile> files_;
  Tensor buffer_;
  Backend* device_ = nullptr;
};

// [n] elements that are read and written at a time.
inline constexpr int64_t kCheckpointChunk = 1 << 18;

}  // namespace zl
