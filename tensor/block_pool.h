// The free memory of one Memory: segments from the system, divided into blocks. PyTorch's and
// DeepSpeed's caching allocators work likewise.
//
// A GPU's driver waits for all work of the GPU when it allocates or frees, and the operating system
// clears every page that it hands out. So a step must not ask them: the first step fills the pool,
// and later steps, which need the same blocks, take nothing from the system.
//
// A released block may be reused at once. On a GPU that is safe because every use of a block begins
// after the earlier work of the rank's compute stream, and before a block is released, that stream
// waits for every copy between ranks that reads or writes it: Work::wait() makes it wait
// (dist/threads/, dist/nccl/).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace zl {

class Backend;

class BlockPool {
 public:
  // Takes segments of backend.segment() bytes: larger for a larger block, smaller if the system
  // has less.
  explicit BlockPool(Backend& backend) : backend_(backend) {}
  ~BlockPool() { give_back_unused(); }  // all blocks must have been released
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // The smallest free block of at least `bytes`, at a multiple of 256 bytes in its segment. Null if
  // the system has no memory left, also after unused segments were given back to it. Throws
  // std::bad_alloc if there is none for the pool's own lists; then no block was taken.
  void* allocate(int64_t bytes);
  void release(void* block, int64_t bytes) noexcept;  // merges it with its free neighbours

  int64_t system_calls() const { return system_calls_; }  // for segments, so far

 private:
  using FreeBlocks = std::set<std::pair<int64_t, char*>>;  // by size [B], then address
  struct Block {
    int64_t bytes;
    bool begins_segment;
    FreeBlocks::node_type entry;  // in free_ if the block is free; so a release allocates nothing
    bool free() const { return entry.empty(); }
  };
  using Blocks = std::map<char*, Block>;

  bool take_segment_for(int64_t bytes);
  bool take_segment(int64_t size);
  void give_back_unused() noexcept;
  Blocks::iterator add(char* address, int64_t bytes, bool begins_segment);
  void set_free(Blocks::iterator block) noexcept;
  void join_next(Blocks::iterator block) noexcept;

  Backend& backend_;
  int64_t system_calls_ = 0;
  Blocks blocks_;  // all blocks, by address
  FreeBlocks free_;
};

}  // namespace zl
