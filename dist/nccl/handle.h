// One rank's NCCL communicator: it joins, is watched while it works, and is ended the right way.
//
// NCCL itself waits forever. So nothing here blocks inside it: every call returns at once. Then
// this rank polls until NCCL is done, NCCL reports an error, another rank fails, or the time is
// over. A communicator that ends well is finalized and destroyed, else it is aborted: one of the
// two, once.
//
// Two threads use it. The rank's thread calls everything; its watchdog (dist/nccl/watchdog.h) calls
// only look() and abort(). NCCL allows one thread at a time in a communicator, and also
// ncclCommGetAsyncError changes it. So they take turns: the rank has the turn from the begin of a
// group until NCCL has taken it, and look() asks NCCL nothing while the rank has it. abort() waits
// for the turn, but no longer than a second: a rank that is still inside NCCL then hangs there, and
// only an abort can free it. The mutex guards who has the turn, and is never held inside NCCL.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "dist/nccl/api.h"
#include "dist/polling.h"
#include "dist/processes/fingerprint_check.h"

namespace zl {

struct NcclJoin {
  const NcclApi& api;
  NcclUniqueId id;
  int rank, size;
  std::chrono::milliseconds timeout;  // of each wait; 0: none
  std::atomic<const char*>&
      inside;                // the NCCL function that the rank is in now, for reports; null: none
  std::string machine = {};  // the name of the rank's machine
  // false: NCCL adds. That is faster for many small calls, without scratch memory, but rounding
  // then depends on sizes and on the machine.
  bool ordered = true;
};

class NcclHandle {
 public:
  using Clock = std::chrono::steady_clock;

  NcclHandle(const NcclJoin& join, const FingerprintCheck& others);
  ~NcclHandle();  // aborts unless it has ended
  NcclHandle(const NcclHandle&) = delete;

  // Returns when all ranks have joined and are connected with each other. Throws
  // CommunicationError, also if another rank fails meanwhile.
  void join(const NcclJoin& join);

  NcclComm* comm() const;  // throws CommunicationError if it has ended
  bool ended() const;

  // Issues the calls that `calls` makes as one group, and returns when NCCL has taken it: from then
  // on other work may be enqueued on the stream. Throws CommunicationError.
  void group(const std::function<void()>& calls);
  // Calls one NCCL function within a group. Throws CommunicationError unless the result is success
  // or in_progress.
  void take(const char* function, const std::function<NcclResult()>& ask) const;
  // Returns when `done`. Throws CommunicationError.
  void wait(const char* what, const std::function<bool()>& done);

  // To be called when no rank makes any more calls, and after the watchdog has ended. Throws
  // CommunicationError.
  void finish();

  // Throws the CommunicationError that wait() would throw now for what has been going on since
  // `began`. Never waits for NCCL. Returns if the communicator has ended.
  void look(const char* what, Clock::time_point began);
  // After an error. May hang if NCCL does; run_process_rank() then ends the
  // process.
  void abort() noexcept;

 private:
  class Turn;
  void connect(const NcclJoin& join);
  NcclResult call(const char* function, const std::function<NcclResult()>& ask) const;
  NcclResult state(NcclComm* comm) const;
  void poll(NcclComm* comm, const char* what, const std::function<bool()>& done) const;
  void require_no_error(NcclComm* comm, const char* what, NcclResult state) const;
  void require_in_time(const char* what, Clock::time_point began) const;
  void throw_remote_error() const;
  void require_taken(const char* function, NcclResult result, NcclComm* comm) const;

  const NcclApi& api_;
  const FingerprintCheck& others_;
  const std::chrono::milliseconds timeout_;
  std::atomic<const char*>& inside_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable turn_ended_;
  bool taken_ = false;  // one of the two threads has the turn
  NcclComm* comm_ = nullptr;
};

}  // namespace zl
