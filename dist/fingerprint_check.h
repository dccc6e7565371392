// How a rank checks, before its data moves, that all ranks make the same call.
//
// Transports such as NCCL move data themselves and never notice that ranks make different calls.
// Ranks that are threads compare calls in memory (dist/threads/local_fingerprint_check.h), ranks
// that are processes over a connection to rank 0 (dist/processes/control_client.h). Other threads
// than the rank's, such as a watchdog, may call only set_state(), fail() and failed(). Functions
// that wait throw CommunicationError if the run has failed.
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
  // Calls issue(), which gives the transport collectives that all ranks have made. Ranks that share
  // a process issue together: this calls issue() when all of them are here and no thread is in a
  // call that holds the driver's lock until GPUs are idle, and returns when all have issued
  // (tensor/platform/driver_turns.h). So the next kernel, which may have to be loaded, does not
  // come before. Processes do not share this lock.
  virtual void issue_together(const Call&, const std::function<void()>& issue) { issue(); }
  // As Communicator::compare_calls_only_on_timeout(). Must do nothing for ranks that share a
  // process: what a rank allocates before a call is then allocated before any rank gives the
  // transport that call.
  virtual void compare_calls_only_on_timeout() {}

  // Called again and again while this rank waits here for other processes, on its thread: for a
  // transport whose data moves only while the rank calls it. It may throw. Empty: nothing.
  virtual void while_waiting(std::function<void()>) {}

  // A send or receive is posted, and matches one that the other rank posts. post() returns its
  // number in the flight recorder. Each must be withdrawn in the end: without a match that fails
  // the run, unless an exception unwinds the stack.
  virtual int64_t post(const Call& call, const EventStream& events) = 0;
  virtual void wait_for_match(int64_t record) = 0;
  virtual bool has_match(int64_t record) const = 0;
  virtual void withdraw(int64_t record, bool unwinding) noexcept = 0;

  // All ranks report the first failure, in their current or next call. Returns true if the caller
  // should throw `why` itself, because it came first and no other rank can add a cause.
  virtual bool fail(const std::string& why) = 0;
  virtual bool failed() const = 0;
  [[noreturn]] void throw_failure(const Call& call) { throw CommunicationError(failure_in(call)); }

 protected:
  // The text of the run's failure for this rank, which is in `call`.
  virtual std::string failure_in(const Call& call) = 0;
};

}  // namespace zl
