// Ranks that share a process share the driver of its GPUs, and use it in turns.
//
// A call that allocates or frees memory of a GPU holds the driver's lock until all GPUs are idle. A
// GPU on which a kernel of NCCL waits for another rank becomes idle only when that rank has issued
// its part, and for that it needs the lock. So no thread may be in such a call from the moment a
// rank issues an operation until all its ranks have (nccl#744, nccl#787).
//
// Ranks that have a process each do not issue in turns, and so their calls never wait here.
#pragma once

#include <condition_variable>
#include <mutex>

namespace zl {

class DriverTurns {
 public:
  static DriverTurns& of_process();

  // Returns when no thread is in a call, and none begins one until end_issuing(). Several ranks may
  // issue at the same time.
  void begin_issuing();
  void end_issuing();
  // Returns when no rank issues, and none begins to until end_call(). Calls may nest, and several
  // threads may be in one at the same time. A rank that issues must not make one.
  void begin_call();
  void end_call();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int issuing_ = 0, calls_ = 0;  // at most one of them is not 0
};

// A rank issues an operation, or its part of one, while it has this.
class IssueTurn {
 public:
  IssueTurn() { DriverTurns::of_process().begin_issuing(); }
  ~IssueTurn() { DriverTurns::of_process().end_issuing(); }
  IssueTurn(const IssueTurn&) = delete;
};

// A thread makes a call that may hold the driver's lock until all GPUs are idle while it has this.
class DriverCall {
 public:
  DriverCall() { DriverTurns::of_process().begin_call(); }
  ~DriverCall() { DriverTurns::of_process().end_call(); }
  DriverCall(const DriverCall&) = delete;
};

}  // namespace zl
