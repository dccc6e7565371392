// Calls and flight records as bytes, for ranks in other processes.
#pragma once

#include <vector>

#include "dist/processes/wire.h"
#include "dist/trace/flight_recorder.h"

namespace zl {

// A call, and the phase and unit in which it is made.
void put_call(WireWriter& wire, const Call& call, const EventStream& events);
// Its text lives as long as `events`, which get its phase and unit.
Call get_call(WireReader& wire, EventStream& events);

// The last calls of a rank. Times go as ages, since clocks of two machines differ.
std::string encode(const FlightRecorder& flight);
void decode(const std::string& bytes, EventStream& events, FlightRecorder& flight);

}  // namespace zl
