// What ranks that do not make the same calls are told: who calls what.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dist/trace/flight_recorder.h"

namespace zl {

inline constexpr const char* kSameOrder = "all ranks must make the same calls in the same order";

// "rank 2", "ranks 0, 1 and 3": one bit each, so there are at most 64.
std::string ranks_text(uint64_t ranks);

// "rank 2 calls … while ranks 0 and 1 call …; all ranks must …"; "" if all mean the same. By rank;
// null: not known.
std::string mismatch_text(const std::vector<const Call*>& calls);

// The same for the first collective in which the recorded calls of two ranks differ.
std::string first_mismatch_text(const std::vector<const FlightRecorder*>& ranks);

// The calls in which others wait for all ranks, as far as this one has heard. A rank that trusts
// calls would go past such a call without noticing; it looks here. May be used by several threads.
class WaitingCalls {
 public:
  void waits_in(int rank, const Call& call);
  // mismatch_text() of `call`, which `rank` makes, and of one who waits in another call of that
  // number; "" if nobody does.
  std::string mismatch(int rank, const Call& call) const;
  std::string mismatch(int rank, const FlightRecorder& flight) const;  // of its last calls

 private:
  struct Waiting {
    Call call;
    std::string name;
  };
  mutable std::mutex mutex_;
  std::map<int, Waiting> waiting_;  // by rank: the last one
};

}  // namespace zl
