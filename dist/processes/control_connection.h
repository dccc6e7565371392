// How the one rank of this process is connected to those of other processes.
//
// The ranks' meeting takes place in the process of rank 0 (dist/processes/rendezvous_host.h). Every
// other rank has one connection to it (dist/processes/remote_control.h), over which it agrees with
// the others, tells what goes wrong, and gives a sign of life. So whoever dies or stops is noticed
// by rank 0, and if that is rank 0, by all.
//
// How a rank may end, in these files: `ended`, it makes no more calls, well or not; `stopped`, by
// an error of its own; `gone`, its connection is at its end; `lost`, rank 0 cannot be reached; and
// all are `over` when all have ended well.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "dist/fingerprint_check.h"

namespace zl {

// Why a run ended, for all its ranks.
struct LineFailure {
  std::string why;     // "" if there is none
  std::string detail;  // an OutOfMemory as bytes, which every rank throws
                       // (dist/processes/process_ranks.cpp); mostly ""
};

class RankLine {
 public:
  virtual ~RankLine() = default;

  // For the rank's thread; the line must outlive it.
  virtual std::unique_ptr<Agreement> agreement() = 0;

  // From the rank's thread: first stopped(), if it was by an error of its own, then always ended().
  virtual void stopped(const LineFailure& failure) = 0;
  virtual void ended() = 0;

  // From one other thread, every few milliseconds: deadlines and signs of life. Returns whether all
  // is over, or all are told of the failure.
  virtual bool watch() = 0;

  virtual LineFailure failure() const = 0;  // from any thread
  // From the thread of watch(), when it has returned true. How things stood at the failure, for
  // people: rank 0 shows the last calls of all ranks, the others theirs if it cannot.
  virtual std::string report() const = 0;
};

// How long rank 0 waits for the last calls of all ranks when one has failed, to find out why and to
// report them, and how long a rank waits for what comes of that.
inline constexpr std::chrono::milliseconds kFlightsToFindOut{300}, kFlightsToReport{150},
    kVerdict{2000};
// How long one may be unable to send anything, because the other side does not read: this long, or
// the timeout if much is under way.
inline constexpr std::chrono::milliseconds kUnread{2000}, kNoHurry{std::chrono::hours(24)};
// How soon an ear notices that all is over.
inline constexpr std::chrono::milliseconds kGlance{50};

// How often a rank gives a sign of life, with a timeout or without, as the others may have one.
inline std::chrono::milliseconds sign_interval(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  return timeout.count() > 0 ? std::clamp(timeout / 4, milliseconds(50), milliseconds(1000))
                             : milliseconds(1000);
}

// Whether this process was stopped (Ctrl-Z, a debugger) between two looks of watch(), which are
// milliseconds apart: then clocks went on, and nobody is late. 0: there was no look before.
inline bool was_stopped(int64_t last, int64_t now) {
  return last > 0 && now - last > 1'000'000'000;
}

// The kinds of messages on a line, and what they hold.
enum class LineMessage : uint8_t {
  // From a rank, which waits for an answer.
  agree,     // a call, whether it trusts others; the answer: rank 0's number of it
  exchange,  // the same, and a text; the answer: all texts
  post,      // a call; the answer: rank 0's number of the letter
  await,     // a letter, then all that have not met; the answer: whether each of those has
  withdraw,  // a letter, whether the rank is unwinding
  // From a rank, which goes on.
  tell,     // rank 0's number of a call, its state
  fail,     // why a call failed, and the rank's flight
  stopped,  // why, and a detail
  flight,   // the rank's last calls
  ended,
  // From rank 0.
  answer,
  failure,  // why, and a detail
  send_flight,
  waits,  // a rank, and the call in which it waits for all
  over,
  // From rank 0: a sign of life. That of the others is their flight.
  alive
};

}  // namespace zl
