#include "dist/nccl/handle.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "dist/nccl/errors.h"
#include "dist/trace/flight_recorder.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr const char* kLeft = "this rank has left NCCL";

// Says for reports where the rank is. If two threads are inside NCCL, it names the function that
// was called first: there NCCL hangs.
class Inside {
 public:
  Inside(std::atomic<const char*>& inside, const char* function) : inside_(inside) {
    const char* none = nullptr;
    first_ = inside_.compare_exchange_strong(none, function);
  }
  Inside(const Inside&) = delete;
  ~Inside() {
    if (first_) inside_ = nullptr;
  }

 private:
  std::atomic<const char*>& inside_;
  bool first_ = false;
};

}  // namespace

class NcclHandle::Turn {
 public:
  enum class Wait { until_free, not_at_all };

  // Throws CommunicationError if it has to wait and the communicator has ended.
  Turn(NcclHandle& handle, Wait wait) : handle_(handle) {
    std::unique_lock lock(handle.mutex_);
    if (wait == Wait::until_free) {
      handle.turn_ended_.wait(lock, [&] { return !handle.taken_; });
      if (!handle.comm_) throw CommunicationError(kLeft);
    }
    if (handle.taken_ || !handle.comm_) return;
    handle.taken_ = true;
    comm_ = handle.comm_;
  }
  Turn(const Turn&) = delete;
  ~Turn() {
    if (!comm_) return;
    const std::lock_guard lock(handle_.mutex_);
    handle_.taken_ = false;
    handle_.turn_ended_.notify_all();
  }
  NcclComm* comm() const { return comm_; }  // null: this thread does not have the turn

 private:
  NcclHandle& handle_;
  NcclComm* comm_ = nullptr;
};

NcclHandle::NcclHandle(const NcclJoin& join, const FingerprintCheck& others)
    : api_(join.api), others_(others), timeout_(join.timeout), inside_(join.inside) {}

NcclHandle::~NcclHandle() { abort(); }

// The rank has no watchdog yet.
void NcclHandle::join(const NcclJoin& join) {
  constexpr const char* kFunction = "ncclCommInitRankConfig";
  take(kFunction, [&] { return api_.comm_init_rank(&comm_, join.size, join.id, join.rank); });
  poll(comm_, kFunction, [] { return true; });
  if (join.size > 1) connect(join);
}

// NCCL connects two ranks in the first group in which they send or receive, and that group waits
// until both sides and all their peers have issued theirs. In a program's own groups the ranks
// could deadlock. Sends of no elements connect too: taskAppend in NCCL's src/enqueue.cc (2.14
// to 2.28) discards only empty collectives.
void NcclHandle::connect(const NcclJoin& join) {
  const NcclData nothing{nullptr, nullptr, 0, NcclType::float32};
  const NcclStream stream{comm_, nullptr};
  group([&] {
    for (int i = 1; i < join.size; ++i) {
      const int next = (join.rank + i) % join.size, last = (join.rank + join.size - i) % join.size;
      take("ncclSend", [&] { return api_.send(nothing, next, stream); });
      take("ncclRecv", [&] { return api_.receive(nothing, last, stream); });
    }
  });
}

NcclComm* NcclHandle::comm() const {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw CommunicationError(kLeft);
  return comm_;
}

bool NcclHandle::ended() const {
  const std::lock_guard lock(mutex_);
  return !comm_;
}

NcclResult NcclHandle::call(const char* function, const std::function<NcclResult()>& ask) const {
  const Inside here(inside_, function);
  return ask();
}

void NcclHandle::take(const char* function, const std::function<NcclResult()>& ask) const {
  const NcclResult result = call(function, ask);
  NcclComm* comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = comm_;
  }
  require_taken(function, result, comm);
}

void NcclHandle::require_taken(const char* function, NcclResult result, NcclComm* comm) const {
  if (result != NcclResult::success && result != NcclResult::in_progress)
    throw CommunicationError(nccl_error_text(api_, function, result, comm));
}

void NcclHandle::group(const std::function<void()>& calls) {
  const Turn turn(*this, Turn::Wait::until_free);
  take("ncclGroupStart", api_.group_start);
  try {
    calls();
  } catch (...) {
    (void)call("ncclGroupEnd",
               api_.group_end);  // an open group would take this thread's next calls
    throw;
  }
  take("ncclGroupEnd", api_.group_end);
  poll(turn.comm(), "ncclGroupEnd", [] { return true; });
}

void NcclHandle::wait(const char* what, const std::function<bool()>& done) {
  const Turn turn(*this, Turn::Wait::until_free);
  poll(turn.comm(), what, done);
}

NcclResult NcclHandle::state(NcclComm* comm) const {
  NcclResult state = NcclResult::success;
  constexpr const char* kFunction = "ncclCommGetAsyncError";
  const NcclResult result =
      call(kFunction, [&] { return api_.comm_get_async_error(comm, &state); });
  require_taken(kFunction, result, comm);
  return state;
}

void NcclHandle::poll(NcclComm* comm, const char* what, const std::function<bool()>& done) const {
  Clock::time_point began = Clock::now(), last = began;
  for (int polls = 1;; ++polls) {
    const Clock::time_point now = Clock::now();
    if (now - last > std::chrono::seconds(1))
      began += now - last;  // this process was stopped meanwhile
    last = now;
    const NcclResult state = this->state(comm);
    require_no_error(comm, what, state);
    if (state == NcclResult::success && done()) return;
    require_in_time(what, began);
    rest_after_poll(polls);
  }
}

void NcclHandle::look(const char* what, Clock::time_point began) {
  {
    const Turn turn(*this, Turn::Wait::not_at_all);
    if (turn.comm()) require_no_error(turn.comm(), what, state(turn.comm()));
  }
  require_in_time(what, began);
}

void NcclHandle::require_no_error(NcclComm* comm, const char* what, NcclResult state) const {
  if (state == NcclResult::remote_error) throw_remote_error();
  require_taken(what, state, comm);
}

void NcclHandle::require_in_time(const char* what, Clock::time_point began) const {
  if (others_.failed()) throw CommunicationError("another rank has failed");
  if (timeout_.count() > 0 && Clock::now() - began > timeout_)
    throw CommunicationError(
        str(what, " was not done within ", human_time(std::chrono::nanoseconds(timeout_).count()),
            ". If the GPUs are only slow, raise --timeout (0 waits forever); else run again with "
            "NCCL_DEBUG=INFO, and look for the first WARN"));
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
  poll(comm_, "ncclCommFinalize", [] { return true; });
  NcclComm* const comm = std::exchange(comm_, nullptr);  // from here there is nothing to abort
  take("ncclCommDestroy", [&] { return api_.comm_destroy(comm); });
}

void NcclHandle::abort() noexcept {
  NcclComm* comm = nullptr;
  {
    std::unique_lock lock(mutex_);
    if (comm_) turn_ended_.wait_for(lock, std::chrono::seconds(1), [&] { return !taken_; });
    comm = std::exchange(comm_, nullptr);
  }
  if (!comm) return;
  (void)call("ncclCommAbort", [&] { return api_.comm_abort(comm); });  // there was an error already
}

}  // namespace zl
