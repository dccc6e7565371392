// Optimizer state on disk, and the update of it in chunks.
#pragma once

#include <functional>
#include <vector>

#include "optim/flat_optimizer.h"

namespace zl {

// How the state of n elements is divided. Chunks and the file's parts are whole blocks of 1,024
// elements, which begin where a disk's blocks do.
struct SwapPlan {
  int64_t stored = 0;  // [n] of each tensor on disk: n rounded up
  int64_t chunk = 0;   // [n]
  // Chunks that are in memory at a time: one is updated, one read, one written.
  int64_t buffers = 0;
};
SwapPlan swap_plan(const Swap& swap, int64_t n);

// Chunks in memory: each has the same elements of every tensor of the state.
using SwapBuffers = std::vector<std::vector<Tensor>>;
SwapBuffers new_swap_buffers(const std::vector<Tensor>& stored, Memory& memory, const Swap& swap);

// Calls `update` for one chunk after another, with the index of its first element. Reads each chunk
// before the call and writes it back after it; with swap.pipeline_read the next one is read, and
// with swap.pipeline_write the previous one written, while one is updated. `stored`: tensors of
// swap_plan().stored elements. Throws OutputError if the disk fails, and what `update` throws; then
// nothing is in flight, and part of the state is updated.
using UpdateChunk = std::function<void(int64_t begin, const std::vector<Tensor>& chunk)>;
void update_swapped(const std::vector<Tensor>& stored, Memory& memory, const Swap& swap,
                    const UpdateChunk& update);

}  // namespace zl
