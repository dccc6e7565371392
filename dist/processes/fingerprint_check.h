// How a rank checks, before its data moves, that all ranks make the same call.
//
// NCCL and MPI move data themselves and never notice that ranks make different calls. So ranks that
// are processes compare them over a connection to rank 0 (dist/processes/control_client.h). Other
// threads than the rank's, such as a watchdog, may call only set_state(), fail() and failed().
// Functions that wait throw CommunicationError if the run has failed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace zl {

class FingerprintCheck {
 public:
  virtual ~FingerprintCheck() = default;

  // Returns when all ranks have come to the same call. After compare_calls_only_on_timeout() it
  // returns at once, unless the call is a barrier. Returns the call's number in the rank's flight
  // recorder.
  virtual int64_t require_same_call(const Call& call, const EventStream& events) = 0;
  virtual void set_state(int64_t record, CallState state) = 0;
  virtual std::vector<std::string> all_gather_object(const Call& call, const std::string& text,
                                                     const EventStream& events) = 0;
  // As Communicator::compare_calls_only_on_timeout().
  virtual void compare_calls_only_on_timeout() {}

  // Polled on the rank's thread while it waits here, for a transport that moves data only in its
  // own calls. It may throw. Empty: no polling.
  virtual void while_waiting(std::function<void()>) {}

  // A send or receive is posted, and matches one that the other rank posts. post() returns its
  // number in the flight recorder. Call withdraw() for each when done. If it has no match by then,
  // the run fails, unless an exception unwinds the stack.
  virtual int64_t post(const Call& call, const EventStream& events) = 0;
  virtual void wait_for_match(int64_t record) = 0;
  virtual void withdraw(int64_t record, bool unwinding) noexcept = 0;

  // All ranks report the first failure, in their current or next call. Returns when this rank knows
  // it.
  virtual void fail(const std::string& why) = 0;
  virtual bool failed() const = 0;
  [[noreturn]] void throw_failure(const Call& call) { throw CommunicationError(failure_in(call)); }

 protected:
  // The text of the run's failure for this rank, which is in `call`.
  virtual std::string failure_in(const Call& call) = 0;
};

}  // namespace zl
