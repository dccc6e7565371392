// Error texts for ranks that do not make the same calls in time: which rank calls what, and which
// one is missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/trace/flight_recorder.h"

namespace zl {

inline constexpr const char* kSameOrder = "all ranks must make the same calls in the same order";

using Flights = std::vector<const FlightRecorder*>;  // by rank

// "rank 2 calls … while ranks 0 and 1 call …; all ranks must …"; "" if all calls are the same. By
// rank; null: not known, or not in the group.
std::string mismatch_text(const std::vector<const Call*>& calls);
// The same for the first collective in which the recorded calls of two ranks differ. A rank that
// has not come to it yet is not named.
std::string first_mismatch_text(const Flights& flights);
// A send and a receive that met: why they do not match; "" if they do.
std::string mismatch_text(int rank, const Call& call, int other_rank, const Call& other);

// `ended` makes no more calls, while `rank` waits for it in `waiting`. Names all ranks that wait
// for it.
std::string ended_text(int ended, const Flights& flights, int rank, const Call& waiting);

// Which ranks are missing in a call that has waited longer than `timeout` [ns]; "" if none has.
// Waits count from `since` [ns] at the earliest.
std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since);

// A rank that waits for others to come to its call.
struct WaitingRank {
  const Call* call = nullptr;  // null: it does not wait
  int peer = -1;               // of a send or receive: the rank that it waits for, in the run
  RankGroup group = {};        // of a collective: it waits for those of them that wait elsewhere
  int64_t round = 0;           // tells one wait from the next
  bool operator==(const WaitingRank&) const = default;
};

// Which of the ranks wait for each other in a circle, or for one that does: forever. Reads no call.
uint64_t deadlocked(const std::vector<WaitingRank>& ranks);
// The text of such a deadlock; "" if there is none.
std::string deadlock_text(const std::vector<WaitingRank>& ranks);

}  // namespace zl
