// The memory of one rank on one GPU, below the ledger: taken from the driver in segments, handed
// out in blocks.
//
// cudaMalloc and cudaFree wait for the whole GPU, so a step must not call them. The first step of a
// training fills the pool; as every step asks for the same, none after it takes more. A block that
// is given back may be handed out at once: every use of it begins behind the rank's compute stream,
// and before a block is given back, that stream follows every move between ranks that still reads
// or writes it (Arrival and Ticket in dist/threads/thread_communicator.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

class DevicePool {
 public:
  // `segment` [B]: what is taken from the driver at a time; more for a larger block, less where the
  // GPU is nearly full.
  explicit DevicePool(int64_t segment) : segment_(segment) {}
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // The smallest free block that holds `bytes`, aligned to 256 bytes. Null if the GPU has no more.
  void* allocate(int64_t bytes);
  void release(void* block) noexcept;  // joins its free neighbours

  int64_t driver_calls() const { return driver_calls_; }  // cudaMalloc and cudaFree so far

 private:
  struct Block {
    int64_t bytes;
    bool free;
    bool begins_segment;
  };
  using Blocks = std::map<char*, Block>;

  bool take_segment(int64_t bytes);
  void give_back_free_segments();
  void set_free(Blocks::iterator block);
  Blocks::iterator join_next(Blocks::iterator block);

  int64_t segment_, driver_calls_ = 0;
  Blocks blocks_;  // all of them, by address: neighbours in a segment are neighbours here
  std::set<std::pair<int64_t, char*>> free_;  // by size, then address
};

}  // namespace zl::ZEROLAB_CUDA
