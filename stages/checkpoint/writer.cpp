#include "stages/checkpoint/writer.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>

#include "tensor/io/crc32c.h"

namespace zl {

PieceWriter::PieceWriter(FileCalls& calls, const std::string& folder,
                         const std::vector<StateFile>& files, Tensor buffer)
    : states_(files), buffer_(std::move(buffer)) {
  for (const StateFile& file : files)
    files_.emplace_back(calls, (std::filesystem::path(folder) / file.name).string(), O_WRONLY);
}

std::span<const std::byte> PieceWriter::host_bytes(const Tensor& values) {
  if (values.backend().host_addressable()) return std::as_bytes(values.data<float>());
  const auto room = std::as_writable_bytes(buffer_.data<float>()).first(size_t(values.bytes()));
  const bool on_device = values.memory().pool() == Pool::device;
  (on_device && device_ ? *device_ : values.backend()).download(values, room.data());
  return room;
}

uint32_t PieceWriter::write(const StatePiece& piece) {
  const int64_t begin = states_[piece.file].layout.item(piece.parameter->name).at;
  const int64_t count = piece.values.numel();
  uint32_t crc = 0;
  for (int64_t at = 0; at < count; at += kCheckpointChunk) {
    const int64_t n = std::min(kCheckpointChunk, count - at);
    const std::span<const std::byte> bytes = host_bytes(piece.values.slice(at, {n}));
    crc = crc32c(bytes, crc);
    files_[piece.file].write(bytes, begin + 4 * (piece.first + at));
  }
  return crc;
}

void PieceWriter::finish() {
  for (WrittenFile& file : files_) {
    file.sync();
    file.close();
  }
}

}  // namespace zl
