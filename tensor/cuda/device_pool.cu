#include <cuda_runtime.h>

#include <algorithm>

#include "tensor/cuda/device_pool.h"

namespace zl::ZEROLAB_CUDA {

constexpr int64_t kAlignment = 256;  // [B] that of cudaMalloc's blocks

DevicePool::~DevicePool() {
  for (const auto& [address, block] : blocks_)
    if (block.begins_segment) cudaFree(address);
}

void* DevicePool::allocate(int64_t bytes) {
  bytes = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  auto found = free_.lower_bound({bytes, nullptr});
  if (found == free_.end()) {
    const bool taken =
        take_segment(std::max(bytes, segment_)) || (bytes < segment_ && take_segment(bytes));
    if (!taken) {
      free_unused_segments();
      if (!take_segment(bytes)) return nullptr;
    }
    found = free_.lower_bound({bytes, nullptr});
  }
  const auto block = blocks_.find(found->second);
  free_.erase(found);
  block->second.free = false;
  if (const int64_t rest = block->second.bytes - bytes; rest > 0) {
    block->second.bytes = bytes;
    set_free(blocks_.emplace(block->first + bytes, Block{rest, true, false}).first);
  }
  return block->first;
}

void DevicePool::release(void* address) noexcept {
  auto block = blocks_.find(static_cast<char*>(address));
  block->second.free = true;
  block = join_next(block);
  if (!block->second.begins_segment && std::prev(block)->second.free) {
    block = std::prev(block);
    free_.erase({block->second.bytes, block->first});
    join_next(block);
  }
  set_free(block);
}

void DevicePool::set_free(Blocks::iterator block) {
  block->second.free = true;
  free_.emplace(block->second.bytes, block->first);
}

// Merges the next block into this one, if it is free and in the same segment.
DevicePool::Blocks::iterator DevicePool::join_next(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.free || next->second.begins_segment) return block;
  free_.erase({next->second.bytes, next->first});
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
  return block;
}

bool DevicePool::take_segment(int64_t bytes) {
  void* segment = nullptr;
  ++driver_calls_;
  if (cudaMalloc(&segment, size_t(bytes)) != cudaSuccess) {
    cudaGetLastError();  // clears the error; Memory reports what did not fit
    return false;
  }
  set_free(blocks_.emplace(static_cast<char*>(segment), Block{bytes, true, true}).first);
  return true;
}

void DevicePool::free_unused_segments() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const bool one_block =
        block->second.begins_segment && (next == blocks_.end() || next->second.begins_segment);
    if (one_block && block->second.free) {
      ++driver_calls_;
      cudaFree(block->first);
      free_.erase({block->second.bytes, block->first});
      blocks_.erase(block);
    }
    block = next;
  }
}

}  // namespace zl::ZEROLAB_CUDA
