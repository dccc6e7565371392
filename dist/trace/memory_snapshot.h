// The memory of all ranks over time, in the format of PyTorch's torch.cuda.memory._snapshot(),
// which https://pytorch.org/memory_viz and torch/cuda/_memory_viz.py open.
//
// Rank r of N is device r. If a rank allocates host memory, its host pool is device N + r. Each
// allocation and release is an event with its address. Its category is the memory use; its frames
// say UNIT:STEP:USE and PHASE:STEP:EVENT, where steps count from the first that is recorded. What a
// rank held before recording began, and never releases, is one block per use, allocated first. A
// segment is a range of addresses without a gap that was ever used. Zero-byte allocations are left
// out.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "dist/trace/trace_recorder.h"

namespace zl {

// Writes the pickle piece by piece; ranks in order.
void write_memory_snapshot(const std::vector<RankTrace>& ranks,
                           const std::function<void(std::string_view)>& write);

}  // namespace zl
