// Error texts for ranks that do not make the same calls in time: which rank calls what, and which
// one is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/flight_recorder.h"

namespace zl {

using Flights = std::vector<const FlightRecorder*>;  // by rank

// "rank 2 calls … while ranks 0 and 1 call …; all ranks must …"; "" if all calls are the same. By
// rank; null: not known, or not in the group.
std::string mismatch_text(const std::vector<const Call*>& calls);
// The same for the first collective in which the recorded calls of two ranks differ. A rank that
// has not come to it yet is not named.
std::string first_mismatch_text(const Flights& flights);
// A send and a receive that met: why they do not match; "" if they do.
std::string mismatch_text(int rank, const Call& call, int other_rank, const Call& other);

// Which ranks are missing in a call that has waited longer than `timeout` [ns]; "" if none has.
// Waits count from `since` [ns] at the earliest.
std::string overdue_text(const Flights& flights, int64_t timeout, int64_t since);

// The call in which each rank waits for others to come; none: it does not wait.
using Waits = std::vector<std::optional<Call>>;

// Why ranks wait forever: for one that makes no more calls (a bit in `ended`), or for each other in
// a circle, such as one in a send while the other is in a collective; "" if none does. Calls must
// be those of one moment. The text names all ranks that wait for an ended one, and two of a circle.
std::string stuck_text(const Waits& waits, uint64_t ended, const Flights& flights);

}  // namespace zl
