#include "tensor/block_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>

#include "tensor/backend.h"

namespace zl {

constexpr int64_t kAlignment = 256;  // [B] that of cudaMalloc's segments

void* BlockPool::allocate(int64_t bytes) {
  if (backend_.segment() == 0) {
    ++system_calls_;
    return backend_.allocate(bytes);
  }
  if (bytes > std::numeric_limits<int64_t>::max() - kAlignment) return nullptr;
  bytes = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  auto found = free_.lower_bound({bytes, nullptr});
  if (found == free_.end()) {
    if (!take_segment_for(bytes)) {
      give_back_unused();
      if (!take_segment_for(bytes)) return nullptr;
    }
    found = free_.lower_bound({bytes, nullptr});
  }
  const auto block = blocks_.find(found->second);
  if (const int64_t rest = block->second.bytes - bytes; rest > 0) {
    set_free(add(block->first + bytes, rest, false));
    block->second.bytes = bytes;
  }
  block->second.entry = free_.extract(found);
  return block->first;
}

void BlockPool::release(void* address, int64_t bytes) noexcept {
  if (backend_.segment() == 0) {
    ++system_calls_;
    return backend_.release(address, bytes);
  }
  const auto block = blocks_.find(static_cast<char*>(address));
  set_free(block);
  join_next(block);
  if (block != blocks_.begin()) join_next(std::prev(block));
}

// Adds a block that is in use.
BlockPool::Blocks::iterator BlockPool::add(char* address, int64_t bytes, bool begins_segment) {
  FreeBlocks entry{{bytes, address}};
  return blocks_.emplace(address, Block{bytes, begins_segment, entry.extract(entry.begin())}).first;
}

void BlockPool::set_free(Blocks::iterator block) noexcept {
  block->second.entry.value() = {block->second.bytes, block->first};
  free_.insert(std::move(block->second.entry));
}

// Merges the next block into this one, if both are free and in the same segment.
void BlockPool::join_next(Blocks::iterator block) noexcept {
  const auto next = std::next(block);
  if (next == blocks_.end() || next->second.begins_segment) return;
  if (!block->second.free() || !next->second.free()) return;
  free_.erase({next->second.bytes, next->first});
  block->second.entry = free_.extract({block->second.bytes, block->first});
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
  set_free(block);
}

// Takes a segment that holds a block of `bytes`.
bool BlockPool::take_segment_for(int64_t bytes) {
  for (int64_t size = std::max(bytes, backend_.segment()); size > bytes; size /= 4)
    if (take_segment(size)) return true;
  return take_segment(bytes);
}

bool BlockPool::take_segment(int64_t size) {
  ++system_calls_;
  void* const segment = backend_.allocate(size);
  if (!segment) return false;
  try {
    set_free(add(static_cast<char*>(segment), size, true));
  } catch (const std::bad_alloc&) {
    backend_.release(segment, size);
    throw;
  }
  return true;
}

void BlockPool::give_back_unused() noexcept {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const bool one_block =
        block->second.begins_segment && (next == blocks_.end() || next->second.begins_segment);
    if (one_block && block->second.free()) {
      ++system_calls_;
      backend_.release(block->first, block->second.bytes);
      free_.erase({block->second.bytes, block->first});
      blocks_.erase(block);
    }
    block = next;
  }
}

}  // namespace zl
