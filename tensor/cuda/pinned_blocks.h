// Small blocks of pinned host memory. Copies between the host and a stream use them, so that the
// host does not wait.
#pragma once

#include <list>
#include <memory>
#include <vector>

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

  // A block of at least `bytes`. If no small one is free, several are allocated at once: the driver
  // waits for all GPUs, so a step must not need new ones. The caller sets `used` and gives the
  // block back. Throws std::runtime_error.
  Block& take(int64_t bytes);
  static void give_back(Block& block) { block.taken = false; }

 private:
  static constexpr int64_t kBlocksOfSlab = 16;

  Backend& backend_;
  std::vector<void*> slabs_;  // of the driver, each divided into blocks of one size
  std::list<Block> blocks_;
};

}  // namespace zl::ZEROLAB_CUDA
