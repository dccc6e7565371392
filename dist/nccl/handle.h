// One rank's communicator of NCCL: joined, watched while it works, and ended in the one way that
// fits.
//
// NCCL itself waits for ever. So nothing here blocks inside it: every call returns at once, and is
// then asked whether it is done until it is, or NCCL reports an error, or another rank has failed,
// or the time is over. Ended well it is finalised and destroyed, otherwise aborted; one of the two,
// once. Belongs to one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "dist/fingerprint_check.h"
#include "dist/nccl/api.h"

namespace zl {

struct NcclJoin {
  const NcclApi& api;
  NcclUniqueId id;
  int rank, size;
  std::chrono::milliseconds timeout;  // of each wait; 0: none
  std::atomic<const char*>&
      inside;  // the function of NCCL in which the rank is now, for reports; null: none
};

class NcclHandle {
 public:
  NcclHandle(const NcclJoin& join, const Agreement& others);
  ~NcclHandle();  // aborts unless it has ended
  NcclHandle(const NcclHandle&) = delete;

  // Returns when all ranks have joined. Throws CommunicationError, also if another rank fails
  // meanwhile.
  void join(const NcclJoin& join);

  NcclComm* comm() const { return comm_; }
  bool ended() const { return !comm_; }

  // Issues what `calls` asks for as one group, and returns when NCCL has taken it: the stream may
  // then be told more. Throws CommunicationError.
  void group(const std::function<void()>& calls);
  // Calls a function of NCCL, by itself or within a group. Throws CommunicationError unless the
  // result is success or in_progress.
  void take(const char* function, const std::function<NcclResult()>& ask) const;
  // Returns when `done`. Throws CommunicationError.
  void wait(const char* what, const std::function<bool()>& done);

  // When no rank will call anything any more. Throws CommunicationError.
  void finish();
  // After an error. May hang if NCCL does: the process ends then, if the rank runs under
  // dist/threads/rank_threads.h.
  void abort() noexcept;

 private:
  NcclResult call(const char* function, const std::function<NcclResult()>& ask) const;
  void wait_for_the_cause() const;
  void require_taken(const char* function, NcclResult result) const;

  const NcclApi& api_;
  const Agreement& others_;
  const std::chrono::milliseconds timeout_;
  std::atomic<const char*>& inside_;
  NcclComm* comm_ = nullptr;
};

}  // namespace zl
