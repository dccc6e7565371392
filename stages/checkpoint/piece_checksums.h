// Checksums of whole tensors from those of their pieces, which several ranks wrote or read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stages/checkpoint/state_pieces.h"

namespace zl {

struct PieceChecksum {
  uint32_t file = 0;             // index of the StateFile
  int32_t parameter = 0;         // position among the parameters of the stage
  int64_t first = 0, count = 0;  // [n]
  uint32_t crc = 0;              // CRC-32C
};
PieceChecksum checksum_of(Stage& stage, const StatePiece& piece, uint32_t crc);

// For all_gather_object().
std::string encode(const std::vector<PieceChecksum>& pieces);
std::vector<PieceChecksum> decode_checksums(const std::string& bytes);

// The checksum of each tensor of each file, by name. The pieces of each tensor must follow each
// other in the order of the ranks; shards do. Throws std::invalid_argument unless they cover all
// tensors.
std::vector<std::map<std::string, uint32_t>> join_checksums(
    Stage& stage, const std::vector<StateFile>& files,
    const std::vector<std::vector<PieceChecksum>>& of_ranks);

}  // namespace zl
