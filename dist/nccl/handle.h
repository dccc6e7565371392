// One rank's NCCL communicator: it joins, is watched while it works, and is ended the right way.
//
// NCCL itself waits forever. So nothing here blocks inside it: every call returns at once. Then
// this rank polls until NCCL is done, NCCL reports an error, another rank fails, or the time is
// over. A communicator that ends well is finalized and destroyed, else it is aborted: one of the
// two, once. Belongs to one thread.
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
      inside;  // the NCCL function that the rank is in now, for reports; null: none
};

class NcclHandle {
 public:
  NcclHandle(const NcclJoin& join, const FingerprintCheck& others);
  ~NcclHandle();  // aborts unless it has ended
  NcclHandle(const NcclHandle&) = delete;

  // Returns when all ranks have joined. Throws CommunicationError, also if another rank fails
  // meanwhile.
  void join(const NcclJoin& join);

  NcclComm* comm() const { return comm_; }
  bool ended() const { return !comm_; }

  // Issues the calls that `calls` makes as one group, and returns when NCCL has taken it: from then
  // on other work may be enqueued on the stream. Throws CommunicationError.
  void group(const std::function<void()>& calls);
  // Calls one NCCL function, by itself or in a group. Throws CommunicationError unless the result
  // is success or in_progress.
  void take(const char* function, const std::function<NcclResult()>& ask) const;
  // Returns when `done`. Throws CommunicationError.
  void wait(const char* what, const std::function<bool()>& done);

  // To be called when no rank makes any more calls. Throws CommunicationError.
  void finish();
  // After an error. May hang if NCCL does; run_rank_threads() and run_process_rank() then end the
  // process.
  void abort() noexcept;

 private:
  NcclResult call(const char* function, const std::function<NcclResult()>& ask) const;
  void throw_remote_error() const;
  void require_taken(const char* function, NcclResult result) const;

  const NcclApi& api_;
  const FingerprintCheck& others_;
  const std::chrono::milliseconds timeout_;
  std::atomic<const char*>& inside_;
  NcclComm* comm_ = nullptr;
};

}  // namespace zl
