// Where the values of other ranks lie before they are added in rank order.
#pragma once

#include <algorithm>

#include "tensor/tensor.h"

namespace zl {

// [n] Elements that each of N ranks adds: all the same, the last ones fewer where N does not divide
// them. Then they begin in cache lines of their own.
inline int64_t ordered_chunk(int64_t count, int ranks) {
  const int64_t line = 64;  // [n]
  return count % ranks == 0 ? count / ranks
                            : ((count + ranks - 1) / ranks + line - 1) / line * line;
}

// [n] of `rank`'s chunk.
inline int64_t chunk_length(int64_t count, int64_t chunk, int rank) {
  return std::clamp<int64_t>(count - rank * chunk, 0, chunk);
}

// Memory for this rank's chunk of `whole` as each other rank has it; undefined if there is nothing
// to add.
inline Tensor ordered_scratch(const Tensor& whole, int rank, int ranks) {
  const int64_t own = chunk_length(whole.numel(), ordered_chunk(whole.numel(), ranks), rank);
  if (ranks == 1 || own == 0) return {};
  return Tensor::empty(whole.memory(), MemoryUse::communication, {(ranks - 1) * own},
                       whole.dtype());
}

}  // namespace zl
