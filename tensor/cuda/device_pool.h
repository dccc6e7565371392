// The memory pool of one rank on one GPU. It allocates segments from the driver and divides them
// into blocks. Memory, with its ledger, allocates from the pool.
//
// cudaMalloc and cudaFree wait for all work of the GPU, so a step must not call them. The first
// step fills the pool; every step needs the same blocks, so later steps allocate nothing from the
// driver. A released block may be reused at once: every use of it begins after the earlier work of
// the rank's compute stream, and before a block is released, that stream waits for every copy
// between ranks that reads or writes it: Work::wait() makes it wait (dist/threads/, dist/nccl/).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

class DevicePool {
 public:
  // segment: [B] the size of an allocation from the driver; larger for a larger block, smaller if
  // the GPU is nearly full.
  explicit DevicePool(int64_t segment) : segment_(segment) {}
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // The smallest free block of at least `bytes`, aligned to 256 bytes. Null if the GPU is full.
  void* allocate(int64_t bytes);
  void release(void* block) noexcept;  // merges it with its free neighbours

  int64_t driver_calls() const { return driver_calls_; }  // cudaMalloc and cudaFree so far

 private:
  struct Block {
    int64_t bytes;
    bool free;
    bool begins_segment;
  };
  using Blocks = std::map<char*, Block>;

  bool take_segment(int64_t bytes);
  void free_unused_segments();
  void set_free(Blocks::iterator block);
  Blocks::iterator join_next(Blocks::iterator block);

  int64_t segment_, driver_calls_ = 0;
  Blocks blocks_;                             // all blocks, by address
  std::set<std::pair<int64_t, char*>> free_;  // free blocks, by size, then address
};

}  // namespace zl::ZEROLAB_CUDA
