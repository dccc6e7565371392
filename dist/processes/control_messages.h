// The control connection between each rank's process and the control server in rank 0's process.
//
// Over it ranks compare calls, report errors, and show that they are alive. So rank 0 notices a
// rank that dies or stops, and if that is rank 0, all notice it.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "dist/trace/flight_recorder.h"
#include "dist/wire.h"

namespace zl {

// Why a run failed, for all its ranks.
struct RunFailure {
  std::string why;     // "" if it has not failed
  std::string detail;  // an OutOfMemory as bytes, which every rank throws
                       // (dist/processes/process_ranks.cpp); mostly ""
};

enum class ControlMessage : uint8_t {
  // From a rank. Each begins with encode() of its flight recorder, as a text.
  alive,     // nothing more; sent periodically, and before waiting for a match
  flight,    // the number of the request that it answers: send_flight
  enter,     // a record and a text: the rank has come to its last call; the answer: met
  withdraw,  // a record, whether an exception unwinds the stack
  suspect,   // why a call failed on this rank; the server finds the cause
  stopped,   // why and detail: the rank failed
  ended,     // the rank makes no more calls
  // From the server.
  met,          // a record: all ranks of this call have come to it; and their texts
  failure,      // why and detail
  send_flight,  // a number; the answer: flight
  over,         // all ranks have ended well
  server_alive
};

// The last calls of a rank, with times as ages, because clocks of two machines differ.
std::string encode(const FlightRecorder& flight, int64_t most);
// Its texts live as long as `texts`. Throws CommunicationError.
void decode(const std::string& bytes, EventStream& texts, FlightRecorder& flight);

inline constexpr int64_t kAllRecords = 64;  // enough to find where the calls of two ranks differ

// How often each side shows that it is alive.
inline std::chrono::milliseconds alive_interval(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  return timeout.count() > 0 ? std::clamp(timeout / 4, milliseconds(50), milliseconds(1000))
                             : milliseconds(1000);
}

// Whether this process was stopped (Ctrl-Z, a debugger) since `last` [ns], the time of a check that
// is made every few milliseconds. Then no other rank is late.
inline bool was_stopped(int64_t last, int64_t now) {
  return last > 0 && now - last > 1'000'000'000;
}

}  // namespace zl
