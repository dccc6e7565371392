// How the processes of one run find each other, and what each says to the control server in rank
// 0's process.
//
// Over this connection ranks compare calls, report errors, and show that they are alive. So rank 0
// notices a rank that dies or stops, and if that is rank 0, all notice it.
//
// Rank 0 listens, at the first free one of several ports. A rank connects and sends `hello`. Rank 0
// answers `alive` if it is of this run, `failure` if it was started differently, and `started` when
// all have come. Both recognize other programs, other versions of zerolab and ranks of other runs,
// with which a rank goes on to the next port. That prevents accidents; it is no cryptography. It
// leaves nothing behind: no file, and the port is free when all have come.
//
// At a collective a rank sends `enter`. When all of its ranks have, each gets `met`, with the texts
// of all. Meanwhile the server asks now and then whether a rank is `alive`, and the rank answers
// with its last calls; a connection that ends before `ended` means that the process has died. A
// rank whose call fails, or that throws, sends `failed`. The server then asks all ranks, and looks
// in their last calls for the cause: calls that differ, or a rank that did not come. A rank that is
// dead or stopped does not answer, so the server waits 300 ms at most. Then all ranks get
// `failure`, with the same text. A rank that makes no more calls sends `ended`. When all have, they
// get `over`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "dist/flight_recorder.h"
#include "dist/processes/launch_environment.h"
#include "dist/processes/socket.h"
#include "dist/processes/wire.h"

namespace zl {

struct ProcessOptions {
  std::string settings;  // equal on all ranks: lines of "key=value"
  // PCI address of the rank's GPU, which no other rank may use; "" on the CPU, or if it is shared.
  std::string gpu;
  std::function<bool()> interrupted;  // polled while the ranks connect
};

// A rank as it was started.
struct RankStart {
  LaunchedRank place;
  ProcessOptions options;
  std::string host, machine;             // host name, and its id (dist/trace/host_id.h)
  std::chrono::milliseconds timeout{0};  // until all have come; 0: none
};
using RankStarts = std::map<int, RankStart>;  // by rank: those that have come to rank 0

inline constexpr auto kAnswer = std::chrono::seconds(2);  // between two processes that connect

// "'seed=8', and rank 0 with …": why a rank that comes cannot join the others, of which rank 0 is
// one: it was started differently (settings, number of ranks, two of one number, two on one GPU).
// "" if it can.
std::string refusal_text(const RankStarts& came, const RankStart& one);
// "rank 1 waited 2.0 s".
std::string waited_text(const RankStart& one);
// Why the run fails if some have not come in time, at rank 0's port.
std::string missing_text(const RankStarts& came, bool other_version);

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
  // Before the run: a rank asks to be let in, and the server answers alive, or failure if it was
  // started differently. When all have come, started.
  hello,  // a RankStart
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

// What a message holds. decode() throws CommunicationError where it ends too early.
std::string encode(const RankStart& start);
RankStart decode_start(const std::string& bytes);  // without what only the rank itself needs
std::string encode(const RunFailure& failure);
RunFailure decode_failure(WireReader& wire);
std::string detail_of(const std::exception& error);  // that a rank threw: of its failure
void throw_failure(const RunFailure& failure);       // nothing if there is none
// The last calls of a rank, with times as ages, because clocks of two machines differ.
std::string encode(const FlightRecorder& flight, int64_t most = kAllRecords);
// Its texts live as long as `texts`.
void decode(const std::string& bytes, EventStream& texts, FlightRecorder& flight);

// The server in rank 0's process at which the ranks of a run, each a process, meet and compare
// their calls.
//
// Rank 0 has a connection within its process, so that the server treats all ranks alike. One thread
// serves all connections. It lets ranks in until all have come. It answers when all ranks have come
// to the same collective, and fails the run when it finds one of these:
//   a rank that is missing  it has not come in time, or was started differently
//   calls that differ       when the last rank has come to the call; if ranks do not compare
//                           it, when the records of two have come (with each sign of life)
//   a rank that has died    its connection ends before it has sent `ended`
//   a rank that is silent   for the timeout, or for half of it where others wait: its process is
//                           stopped, or its machine or the network is gone
//   a rank that is late     another one has waited for the timeout; all late ranks are named
//   ranks in a circle       they wait for each other, or for one that makes no more calls
//   a failure               a rank sends it: of one of its calls, or its own
// A rank that sends a failed call may be a victim. So the server asks all ranks for their last
// calls, and looks in them for calls that differ and for ranks that have not come. It waits 300 ms
// for the answers, at most. A failure whose cause is known takes the place of one whose cause is
// not. If the run fails before all have come, rank 0 stays for another second, and tells those that
// come in it.
//
// Starts it, in its thread, which is to be stopped when rank 0 has ended. Returns rank 0's
// connection to it, which ends when all ranks know how the run ended and have had time to read it.
// `timeout` of a call, and of a sign of life; 0: none. Throws CommunicationError if no port is
// free.
std::unique_ptr<Connection> start_control_server(const RankStart& self,
                                                 std::chrono::milliseconds timeout,
                                                 std::jthread& server);

}  // namespace zl
