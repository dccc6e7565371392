// How much address space a sequence of allocations and releases takes, if one contiguous arena
// serves it. Holes between blocks can make that more than the bytes that are live together: this is
// fragmentation, the M_D of the ZeRO paper (Rajbhandari et al. 2020, arXiv:1910.02054,
// section 6.3).
//
// Nothing is allocated: blocks get addresses only. A block never moves. Sizes are not rounded, so
// that all the difference is fragmentation.
#pragma once

#include <cstdint>
#include <map>

namespace zl {

// The allocation of a block, or its release.
struct BlockEvent {
  int64_t block;  // its number; a number may be used again after its release
  int64_t bytes;  // 0: the event changes nothing
  bool allocates;
};

// Which hole a new block takes: the first that is large enough, or the smallest one. Of equal ones
// the first. Where none is large enough the arena grows.
enum class Fit { first, best };
const char* name(Fit fit);

struct ArenaUse {
  int64_t high_water = 0;  // [B] the end of the highest block at any time
  int64_t peak_live = 0;   // [B] the most that was live at one time
  // The part by which the arena is larger than the blocks in it ever are together.
  double overhead() const { return peak_live > 0 ? double(high_water) / double(peak_live) - 1 : 0; }
  bool operator==(const ArenaUse&) const = default;
};

class ArenaModel {
 public:
  explicit ArenaModel(Fit fit) : fit_(fit) {}
  // Throws std::invalid_argument for a block that is already live, and for the release of one that
  // is not, or that has another size.
  void see(const BlockEvent& event);
  const ArenaUse& use() const { return use_; }
  int64_t live() const { return live_total_; }  // [B]

 private:
  struct Block {
    int64_t address, bytes;
  };
  int64_t take(int64_t bytes);  // its address
  void give_back(const Block& block);

  Fit fit_;
  ArenaUse use_;
  int64_t live_total_ = 0, end_ = 0;  // [B]; behind `end_` all is free
  std::map<int64_t, Block> live_;     // by number
  std::map<int64_t, int64_t> holes_;  // address to size; no two touch, and none touches `end_`
};

}  // namespace zl
