// Finds accesses to the same bytes that nothing orders, even where the values agree by luck.
//
// Each rank has a vector clock, and each call one part per rank, because a rank learns only of its
// own part. When a rank issues a call, the call inherits the rank's clock; a call has that of all
// ranks. When a rank has waited for its part, the rank inherits the call's clock. An access is
// ordered after an earlier one if its clock includes that one. Two accesses to a byte, of which at
// least one writes, are a race if neither is ordered after the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/events.h"

namespace zl::test {

// Who accesses memory, for people: a rank in an event, or a call.
struct Accessor {
  int rank = 0;
  int call = -1;            // the number of the call that all ranks issued; -1: the rank itself
  const char* what = "";    // the kernel, or the kind of the call
  const char* detail = "";  // the name of the call
  const char* unit = "";
  const char* phase = "";
};

class Races {
 public:
  // Without `order`, only accesses to memory that is not allocated are found.
  explicit Races(int ranks, bool order = true);

  // A block that a rank has from the system, until it gives it back.
  void allocated(const void* block, int64_t bytes);
  void freed(const Accessor& by, const void* block, int64_t bytes);

  // Order. Calls are numbered from 0, in the order of issue, which is the same on all ranks.
  void issued(int call, int rank);
  void waited(int call, int rank);

  // False if this is the first race, or memory that is not allocated: then first() names both.
  bool access(const Accessor& by, const void* address, int64_t bytes, bool writes);
  const std::string& first() const { return first_; }  // empty: there is none

 private:
  using Clock = std::vector<uint32_t>;  // [i]: the time of component i that is known
  struct Access {
    size_t component = 0;  // of a rank, or of a rank's part of a call
    uint32_t time = 0;
    Accessor by;
  };
  struct Range {  // bytes with one history; the key of the map is its first one
    uintptr_t end = 0;
    Access write;               // time 0: none
    std::vector<Access> reads;  // since that write
  };
  using Ranges = std::map<uintptr_t, Range>;

  size_t part(int call, int rank) const { return size_t(ranks_ + call * ranks_ + rank); }
  Access access_of(const Accessor& by) const;
  const Clock& clock_of(const Accessor& by) const;
  bool ordered(const Access& earlier, const Accessor& later) const;
  Ranges::iterator split(uintptr_t at);
  struct Attempt {
    const Accessor& by;
    uintptr_t begin, end;
    bool writes;
  };
  bool report(const Access& earlier, bool earlier_wrote, const Attempt& attempt);
  std::string place(uintptr_t begin, uintptr_t end) const;

  int ranks_;
  bool order_;
  std::vector<Clock> ranks_know_, calls_know_;
  Ranges ranges_;                        // of all blocks, without a gap inside a block
  std::map<uintptr_t, int64_t> blocks_;  // [B]
  std::string first_;
};

}  // namespace zl::test
