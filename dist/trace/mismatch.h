// Error texts for ranks that do not make the same calls in time: which rank calls what, and which
// one is missing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/trace/flight_recorder.h"

namespace zl {

inline constexpr const char* kSameOrder = "all ranks must make the same calls in the same order";

using Flights = std::vector<const FlightRecorder*>;  // by rank

// "rank 2", "ranks 0, 1 and 3", of a mask with one bit per rank.
std::string ranks_text(uint64_t ranks);

// "rank 2 calls … while ranks 0 and 1 call …; all ranks must …"; "" if all calls are the same. By
// rank; null: not known.
std::string mismatch_text(const std::vector<const Call*>& calls);
// The same for the first collective in which the recorded calls of two ranks differ.
std::string first_mismatch_text(const Flights& flights);
// A send and a receive that met: why they do not match; "" if they do.
std::string mismatch_text(int rank, const Call& call, int other_rank, const Call& other);

// `ended` makes no more calls, while `rank` waits for it in `waiting`.
std::string ended_text(int ended, const Flights& flights, int rank, const Call& waiting);

// Which ranks are missing in a call that has waited longer than `timeout` [ns]; "" if none has.
// Waits count from `since` [ns] at the earliest.
std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since);

// A rank that waits in a send or receive waits for one other rank and comes to no collective. So it
// waits forever if the chain of ranks that starts with it ends in one that waits for all ranks, or
// is a circle. Returns the text of that deadlock, or "". Both functions give the call in which a
// rank waits, or null.
using WaitingIn = std::function<const Call*(int rank)>;
std::string deadlock_text(int ranks, const WaitingIn& point_to_point, const WaitingIn& collective);

}  // namespace zl
