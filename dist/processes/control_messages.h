// The control connection between each rank's process and the control server in rank 0's process.
//
// Over it ranks compare calls, report errors, and show that they are alive. So rank 0 notices a
// rank that dies or stops, and if that is rank 0, all notice it.
//
// A rank connects and sends `hello`. Rank 0 answers `accepted`, and `started` when all have come.
// At a collective a rank sends `enter`. When all of its ranks have, each gets `met`, with the texts
// of all. A rank whose call fails, or that throws, sends `failed`. The server then asks all ranks
// for their last calls by `send_flight`, and each answers with `flight`. In these it looks for the
// cause: calls that differ, or a rank that did not come. A rank that is dead or stopped does not
// answer, so the server waits 300 ms at most. Then all ranks get `failure`, with the same text. A
// rank that makes no more calls sends `ended`. When all have, they get `over`. Meanwhile both sides
// send `alive` and `server_alive`; a connection that ends before `ended` means that the process has
// died.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "dist/flight_recorder.h"
#include "dist/processes/wire.h"

namespace zl {

// Why a run failed, for all its ranks.
struct RunFailure {
  std::string why;     // "" if it has not failed
  std::string detail;  // kInputFailure, or an OutOfMemory as bytes, which every rank throws
                       // (dist/processes/process_ranks.cpp); mostly ""
};
inline constexpr const char* kInputFailure = "input";  // all ranks throw InputError
inline constexpr const char* kInterrupted = "interrupted while waiting for the ranks to connect";

enum class ControlMessage : uint8_t {
  // Before the run (dist/processes/bootstrap.h): a rank asks to be let in; the answer of rank 0,
  // which is a failure if the rank was started differently; and all have come.
  hello,
  accepted,
  started,
  // From a rank. Each begins with encode() of its flight recorder, as a text.
  alive,   // nothing more; sent periodically
  flight,  // the number of the request that it answers: send_flight
  enter,   // a text: the rank has come to its last call, a collective; the answer: met
  failed,  // why and detail, and whether the server is to find the cause: the rank failed
  ended,   // the rank makes no more calls
  // From the server.
  met,          // all ranks have come to this rank's last call: their texts
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
