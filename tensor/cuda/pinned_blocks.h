// Small blocks of pinned host memory. Copies between the host and a stream use them, so that the
// host does not wait.
#pragma once

#include <list>
#include <memory>

#include "tensor/backend.h"

namespace zl::ZEROLAB_CUDA {

class PinnedBlocks {
 public:
  // A block may be reused when its event is done; null: at once.
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<const StreamEvent> used;
    bool taken = false;
  };
  static constexpr int64_t kSmall = 1 << 16;  // [B] larger copies wait and need no block

  explicit PinnedBlocks(Backend& backend) : backend_(backend) {}
  ~PinnedBlocks();
  PinnedBlocks(const PinnedBlocks&) = delete;
  PinnedBlocks& operator=(const PinnedBlocks&) = delete;

  // A block of at least `bytes`. The caller sets `used` and gives the block back. Throws
  // std::runtime_error.
  Block& take(int64_t bytes);
  static void give_back(Block& block) { block.taken = false; }

 private:
  Backend& backend_;
  std::list<Block> blocks_;
};

}  // namespace zl::ZEROLAB_CUDA
