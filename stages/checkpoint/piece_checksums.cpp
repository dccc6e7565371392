#include "stages/checkpoint/piece_checksums.h"

#include <algorithm>

#include "dist/wire.h"
#include "tensor/io/crc32c.h"

namespace zl {

PieceChecksum checksum_of(Stage& stage, const StatePiece& piece, uint32_t crc) {
  const std::vector<Parameter*>& all = stage.parameters();
  return {.file = uint32_t(piece.file),
          .parameter = int32_t(std::ranges::find(all, piece.parameter) - all.begin()),
          .first = piece.first,
          .count = piece.values.numel(),
          .crc = crc};
}

std::string encode(const std::vector<PieceChecksum>& pieces) {
  WireWriter wire;
  for (const PieceChecksum& piece : pieces) wire.put(piece);
  return wire.take();
}

std::vector<PieceChecksum> decode_checksums(const std::string& bytes) {
  std::vector<PieceChecksum> pieces;
  for (WireReader wire(bytes); !wire.at_end();) pieces.push_back(wire.get<PieceChecksum>());
  return pieces;
}

std::vector<std::map<std::string, uint32_t>> join_checksums(
    Stage& stage, const std::vector<StateFile>& files,
    const std::vector<std::vector<PieceChecksum>>& of_ranks) {
  std::vector<std::map<std::string, uint32_t>> joined(files.size());
  std::vector<std::map<std::string, int64_t>> covered(files.size());  // [n]
  for (const std::vector<PieceChecksum>& pieces : of_ranks)
    for (const PieceChecksum& piece : pieces) {
      const std::string& tensor = stage.parameters()[size_t(piece.parameter)]->name;
      int64_t& next = covered[piece.file][tensor];
      require(next == piece.first, "tensor '", tensor, "': a piece begins at element ", piece.first,
              ", but the one before it ends at ", next);
      uint32_t& crc = joined[piece.file][tensor];
      crc = crc32c_join(crc, piece.crc, 4 * piece.count);
      next += piece.count;
    }
  for (size_t f = 0; f < files.size(); ++f)
    for (const SafetensorsLayout::Item& item : files[f].layout.items()) {
      joined[f].try_emplace(item.name, 0);  // of no elements
      require(covered[f][item.name] == numel(item.shape), "tensor '", item.name,
              "': ", covered[f][item.name], " of ", numel(item.shape), " elements were covered");
    }
  return joined;
}

}  // namespace zl
