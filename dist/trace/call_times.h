// How long every call of a collective took, read from a rank's events.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tensor/events.h"

namespace zl {

// A call, from entering to leaving; one in flight, from its issue until its data had moved. Its
// texts are those of the events. [ns]; 0: it has not come so far.
struct CallSpan {
  std::string_view kind, name, group;      // "reduce_scatter", "h.3 gradient"
  int64_t bytes = 0, count = 0, sent = 0;  // of the unsharded side; [n]; by the ring formula
  int64_t began = 0, met = 0;              // met: the last rank had arrived
  int64_t wait = 0, moved = 0, ended = 0;  // wait: the rank began to wait for it
  int lane = 0;                            // calls that overlap have different lanes
  int64_t index = -1;                      // counts those of all ranks; -1: another call
  int64_t end() const { return moved > 0 ? moved : ended; }
};

// Follows the calls of one rank. Ignores those that began before it saw events.
class OpenCalls {
 public:
  // Returns the call that ended with this event, if one did.
  std::optional<CallSpan> see(const Event& event);
  const std::vector<CallSpan>& calls() const { return open_; }  // by their begins

 private:
  std::vector<CallSpan> open_;
  int64_t collectives_ = 0;
};

// In Gbit/s, as nccl-tests defines them: the bytes of the unsharded side over the time, and that
// times what an ideal ring sends over each link: 2(N-1)/N for all_reduce, (N-1)/N for
// reduce_scatter, all_gather and all_to_all, else 1.
// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
struct Bandwidth {
  double algorithm = 0, bus = 0;
};
Bandwidth bandwidth(std::string_view kind, int64_t bytes, double nanoseconds, int ranks);

}  // namespace zl
