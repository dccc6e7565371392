// The control connection between each rank's process and the control server in rank 0's process.
//
// Over it ranks compare calls, report errors, and show that they are alive. So rank 0 notices a
// rank that dies or stops, and if that is rank 0, all notice it.
//
// A rank connects and sends `hello`. Rank 0 answers `alive` if it is of this run, and `started`
// when all have come. At a collective a rank sends `enter`. When all of its ranks have, each gets
// `met`, with the texts of all. Meanwhile the server asks now and then whether a rank is `alive`,
// and the rank answers with its last calls; a connection that ends before `ended` means that the
// process has died. A rank whose call fails, or that throws, sends `failed`. The server then asks
// all ranks, and looks in their last calls for the cause: calls that differ, or a rank that did not
// come. A rank that is dead or stopped does not answer, so the server waits 300 ms at most. Then
// all ranks get `failure`, with the same text. A rank that makes no more calls sends `ended`. When
// all have, they get `over`.
#pragma once

#include <cstdint>
#include <string>

#include "dist/flight_recorder.h"
#include "dist/processes/wire.h"

namespace zl {

// Why a run failed, for all its ranks.
struct RunFailure {
  std::string why;          // "" if it has not failed
  std::string detail = "";  // mostly ""; kInputFailure; an OutOfMemory as bytes: all ranks throw it
  std::string report = "";  // rank 0: the last calls of all ranks; a rank that lost it: its own
};
inline constexpr const char* kInputFailure = "input";  // all ranks throw InputError
inline constexpr const char* kInterrupted = "interrupted while waiting for the ranks to connect";
std::string died_text(int rank);
std::string silent_text(int rank, int64_t silence);  // [ns]

enum class ControlMessage : uint32_t {
  // Before the run (dist/processes/bootstrap.h): a rank asks to be let in, and the server answers
  // alive, or failure if it was started differently. When all have come, started.
  hello,
  started,
  alive,  // from the server: a number; the answer: the same
  // From a rank. Each begins with encode() of its flight recorder, as a text.
  enter,   // a text: the rank has come to its last call, a collective; the answer: met
  failed,  // a failure, and whether the server is to find the cause: the rank failed
  ended,   // the rank makes no more calls
  // From the server.
  met,      // all ranks have come to this rank's last call: their texts
  failure,  // a failure
  over      // all ranks have ended well
};

std::string encode(const RunFailure& failure);
RunFailure decode_failure(WireReader& wire);         // throws CommunicationError
std::string detail_of(const std::exception& error);  // that a rank threw: of its failure
void throw_failure(const RunFailure& failure);       // nothing if there is none

// The last calls of a rank, with times as ages, because clocks of two machines differ.
std::string encode(const FlightRecorder& flight, int64_t most);
// Its texts live as long as `texts`. Throws CommunicationError.
void decode(const std::string& bytes, EventStream& texts, FlightRecorder& flight);

}  // namespace zl
