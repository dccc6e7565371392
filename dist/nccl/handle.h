// One rank's NCCL communicator: it joins, is watched while it works, and is ended the right way.
//
// NCCL itself waits forever. So nothing here blocks inside it: every call returns at once. Then
// this rank polls until NCCL is done, NCCL reports an error, another rank fails, or the time is
// over. A communicator that ends well is finalized and destroyed, else it is aborted: one of the
// two, once.
//
// Work::wait() does not wait for the data, so the rank's thread cannot notice that an operation on
// a GPU hangs: it may compute, or be blocked in a synchronisation with its GPU. So a second thread,
// the watchdog, looks at the operations that are not done. If NCCL reports an error, another rank
// fails, or the time of an operation is over, it fails the run with the operation's name, and
// aborts the communicator. Then NCCL's kernels end, and so do streams and hosts that wait for them.
// What they then have computed is garbage. So the failure is known before the abort: the rank's
// next call throws it. The watchdog starts with the first operation. Operations on a device without
// streams are done when they are issued, and have none.
//
// NCCL allows one thread at a time in a communicator, and also ncclCommGetAsyncError changes it. So
// the two threads take turns: the rank has the turn from the begin of a group until NCCL has taken
// it, and the watchdog asks NCCL nothing while the rank has it. abort() waits for the turn, but no
// longer than a second: a rank that is still inside NCCL then hangs there, and only an abort can
// free it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dist/nccl/api.h"
#include "dist/ordered/polling.h"
#include "dist/processes/control_client.h"
#include "tensor/backend.h"

namespace zl {

struct NcclJoin {
  const NcclApi& api;
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

  // An operation that was issued at `began`. It is done when its event is.
  struct Watched {
    Call call;
    int64_t record = 0;  // in the flight recorder
    std::shared_ptr<const StreamEvent> moved;
    Clock::time_point began;
  };

  NcclHandle(const NcclJoin& join, ControlClient& others);
  ~NcclHandle();  // aborts unless it has ended
  NcclHandle(const NcclHandle&) = delete;

  // All that follows is called on the rank's thread, and throws CommunicationError.

  // Returns when all ranks have joined and are connected with each other.
  void join(const NcclUniqueId& id);
  NcclComm* comm() const;  // throws if it has ended
  bool ended() const { return !comm_; }
  // Issues the calls that `calls` makes as one group, and returns when NCCL has taken it: from then
  // on other work may be enqueued on the stream.
  void group(const std::function<void()>& calls);
  // Calls one NCCL function within a group. Throws unless the result is success or in_progress.
  void take(const char* function, const std::function<NcclResult()>& ask) const;

  void watch(Watched operation, Backend& backend);  // which recorded the event
  // The rank has waited for the operation: from now on it is moving, until it is done.
  void waited_for(int64_t record);
  void wait_for_operations();  // all of them
  // To be called when no rank makes any more calls.
  void finish();

  // Fails the run, aborts, and throws.
  [[noreturn]] void fail(const Call& call, const std::string& why);
  // After an error. May hang if NCCL does; run_process_rank() then ends the process.
  void abort() noexcept;

 private:
  void connect();
  NcclResult call(const char* function, const std::function<NcclResult()>& ask) const;
  void require_taken(const char* function, NcclResult result, NcclComm* comm) const;
  bool is_idle(NcclComm* comm, const char* what) const;
  void await_report() const;
  void require_in_time(const char* what, Clock::time_point began) const;
  // Returns when NCCL is idle, and `done`.
  void poll(
      const char* what, const std::function<bool()>& done = [] { return true; }) const;

  // Of the watchdog.
  void run();
  bool look();  // false: the run has failed
  void report(const Call& call, const std::string& why) noexcept;
  Clock::duration until_next_look() const;
  std::optional<Watched> oldest() const;  // of the operations that are not known to be done
  void set_done(int64_t record);
  void stop();

  const NcclJoin join_;
  ControlClient& others_;
  const Clock::duration interval_;  // of the watchdog's looks

  std::mutex turn_;  // of the thread that is inside NCCL
  std::atomic<NcclComm*> comm_{nullptr};

  mutable std::mutex mutex_;  // guards these
  std::condition_variable stopped_;
  std::deque<Watched> operations_;  // in the order of their calls
  bool stopping_ = false;
  std::thread watchdog_;
};

}  // namespace zl
