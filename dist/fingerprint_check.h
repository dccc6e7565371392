// How one rank agrees with the others before its data moves: all mean the same call, or all are
// told why not.
//
// Used with transports such as NCCL, which move data themselves and never notice that ranks
// disagree. Ranks of one process agree in a Meeting; a rank in another process does so over its
// line to rank 0 (dist/processes/control_connection.h). Belongs to the rank's thread, but for
// failed(). What returns after waiting throws CommunicationError if there is a failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/trace/flight_recorder.h"

namespace zl {

class Agreement {
 public:
  virtual ~Agreement() = default;

  // Returns when all ranks have come with the same call, or at once once calls are trusted (a
  // barrier never is). Returns the call's number in the rank's flight recorder.
  virtual int64_t agree(const Call& call, const EventStream& events) = 0;
  // How far a call has come.
  virtual void tell(int64_t record, FlightRecord::State state) = 0;
  // What every rank says, in the order of ranks.
  virtual std::vector<std::string> exchange(const Call& call, const std::string& text,
                                            const EventStream& events) = 0;
  // As Communicator::trust_calls().
  virtual void trust_calls() {}

  // A send or a receive is a letter, which meets that of the other side. Returns its number, also
  // in the flight recorder. The caller must withdraw each in the end; one that has not met is then
  // a failure, unless the rank is `unwinding` an error of its own.
  virtual int64_t post(const Call& call, const EventStream& events) = 0;
  virtual void await(int64_t letter) = 0;          // returns when it has met the other side's
  virtual bool has_met(int64_t letter) const = 0;  // as far as is known here since the last await
  virtual void withdraw(int64_t letter, bool unwinding) noexcept = 0;

  // The first failure is the one that all ranks report, in their current or next call. Returns
  // whether the caller shall throw `why` itself: it was the first, and nobody can say more about
  // it.
  virtual bool fail(const std::string& why) = 0;
  virtual bool failed() const = 0;
  [[noreturn]] void throw_failure(const Call& call) { throw CommunicationError(told(call)); }

 protected:
  // What this rank says in `call` of a failure that it was told.
  virtual std::string told(const Call& call) = 0;
};

}  // namespace zl
