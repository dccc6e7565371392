// The thread that watches a rank's operations on its GPU while the rank goes on.
//
// Work::wait() does not wait for the data, so the rank's thread cannot notice that an operation
// hangs: it may compute, or be blocked in a synchronisation with its GPU. The watchdog looks at the
// operations that are not done. If NCCL reports an error, another rank fails, or the time of an
// operation is over, it fails the run with the operation's name, and aborts the communicator. Then
// NCCL's kernels end, and so do streams and hosts that wait for them. What they then have computed
// is garbage. So the failure is there before the abort: the rank's next call throws it.
//
// The thread starts with the first operation. Operations on a device without streams are done when
// they are issued, and have no watchdog.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dist/nccl/handle.h"
#include "tensor/backend.h"

namespace zl {

class NcclWatchdog {
 public:
  using Clock = NcclHandle::Clock;

  // An operation that was issued at `began`. It is done when its event is.
  struct Watched {
    Call call;
    int64_t record = 0;  // in the flight recorder
    std::shared_ptr<const StreamEvent> moved;
    Clock::time_point began;
  };

  NcclWatchdog(const NcclJoin& join, NcclHandle& handle, FingerprintCheck& others);
  ~NcclWatchdog() { stop(); }
  NcclWatchdog(const NcclWatchdog&) = delete;

  // All that follows is called on the rank's thread.

  // `backend` recorded the event.
  void watch(Watched operation, Backend& backend);
  // The rank has waited for the operation: from now on it is moving, until it is done.
  void waited_for(int64_t record);
  // Throws the CommunicationError that the watchdog has found; `call`: where the rank is.
  void require_no_failure(const Call& call);

  // The first operation that is not known to be done.
  std::optional<Watched> oldest() const;
  void set_done(int64_t record);
  void stop();  // returns when the thread has ended

 private:
  enum class Failure { none, is_reported, known };

  void start(Backend& backend);
  void run();
  Clock::duration until_next_look() const;
  void look();
  void fail(const Call& call, const std::string& why);

  const int rank_;
  const std::chrono::milliseconds timeout_;
  const Clock::duration interval_;
  NcclHandle& handle_;
  FingerprintCheck& others_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Watched> operations_;  // in the order of their calls
  bool started_ = false, stopping_ = false;
  Failure failure_ = Failure::none;
  std::thread thread_;
};

}  // namespace zl
