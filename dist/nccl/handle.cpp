#include "dist/nccl/handle.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "dist/nccl/errors.h"
#include "dist/trace/flight_recorder.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeps longer each time: fast operations are noticed soon, and slow ones do not keep a core
// busy.
class Pause {
 public:
  void rest() {
    if (++times_ <= 64) return std::this_thread::yield();
    std::this_thread::sleep_for(length_);
    length_ = std::min(length_ * 2, std::chrono::microseconds(500));
  }

 private:
  int times_ = 0;
  std::chrono::microseconds length_{10};
};

}  // namespace

NcclHandle::NcclHandle(const NcclJoin& join, const FingerprintCheck& others)
    : api_(join.api), others_(others), timeout_(join.timeout), inside_(join.inside) {}

NcclHandle::~NcclHandle() { abort(); }

void NcclHandle::join(const NcclJoin& join) {
  constexpr const char* kFunction = "ncclCommInitRankConfig";
  take(kFunction, [&] { return api_.comm_init_rank(&comm_, join.size, join.id, join.rank); });
  wait(kFunction, [] { return true; });
}

NcclResult NcclHandle::call(const char* function, const std::function<NcclResult()>& ask) const {
  inside_ = function;
  const NcclResult result = ask();
  inside_ = nullptr;
  return result;
}

void NcclHandle::take(const char* function, const std::function<NcclResult()>& ask) const {
  require_taken(function, call(function, ask));
}

void NcclHandle::require_taken(const char* function, NcclResult result) const {
  if (result != NcclResult::success && result != NcclResult::in_progress)
    throw CommunicationError(nccl_error_text(api_, function, result, comm_));
}

void NcclHandle::group(const std::function<void()>& calls) {
  take("ncclGroupStart", api_.group_start);
  try {
    calls();
  } catch (...) {
    (void)call("ncclGroupEnd",
               api_.group_end);  // an open group would take this thread's next calls
    throw;
  }
  take("ncclGroupEnd", api_.group_end);
  wait("ncclGroupEnd", [] { return true; });
}

void NcclHandle::wait(const char* what, const std::function<bool()>& done) {
  Clock::time_point began = Clock::now(), last = began;
  for (Pause pause;; pause.rest()) {
    const Clock::time_point now = Clock::now();
    if (now - last > std::chrono::seconds(1))
      began += now - last;  // this process was stopped meanwhile
    last = now;
    NcclResult state = NcclResult::success;
    take("ncclCommGetAsyncError", [&] { return api_.comm_get_async_error(comm_, &state); });
    if (state == NcclResult::remote_error) throw_remote_error();
    require_taken(what, state);
    if (state == NcclResult::success && done()) return;
    if (others_.failed()) throw CommunicationError("another rank has failed");
    if (timeout_.count() > 0 && now - began > timeout_)
      throw CommunicationError(
          str(what, " was not done within ", human_time(std::chrono::nanoseconds(timeout_).count()),
              ". If the GPUs are only slow, raise --timeout (0 waits forever); else run again with "
              "NCCL_DEBUG=INFO, and look for the first WARN"));
  }
}

// Another rank has gone and is about to report why, which says more than NCCL can. Returns if it
// does not.
void NcclHandle::throw_remote_error() const {
  constexpr std::chrono::milliseconds most{300};
  const Clock::time_point until =
      Clock::now() + (timeout_.count() > 0 ? std::min(most, timeout_ / 8) : most);
  while (!others_.failed() && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (others_.failed()) throw CommunicationError("another rank has failed");
}

void NcclHandle::finish() {
  if (ended()) return;
  take("ncclCommFinalize", [&] { return api_.comm_finalize(comm_); });
  wait("ncclCommFinalize", [] { return true; });
  NcclComm* const comm = std::exchange(comm_, nullptr);  // from here there is nothing to abort
  take("ncclCommDestroy", [&] { return api_.comm_destroy(comm); });
}

void NcclHandle::abort() noexcept {
  if (ended()) return;
  NcclComm* const comm = std::exchange(comm_, nullptr);
  (void)call("ncclCommAbort", [&] { return api_.comm_abort(comm); });  // there was an error already
}

}  // namespace zl
