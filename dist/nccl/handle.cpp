#include "dist/nccl/handle.h"

#include <algorithm>
#include <future>
#include <utility>

#include "dist/flight_recorder.h"
#include "dist/run_ranks.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

// Between two looks of the watchdog: long enough to cost nothing, and so short that the server does
// not say before it that a rank misses the next call.
constexpr auto kInterval = 10ms;

}  // namespace

NcclHandle::NcclHandle(const NcclJoin& join, int rank, int size, ControlClient& others)
    : join_(join),
      rank_(rank),
      size_(size),
      timeout_(std::chrono::nanoseconds(join.timeout).count()),
      others_(others) {}

NcclHandle::~NcclHandle() {
  watchdog_ = {};  // ends it
  abort();
}

// The rank has no watchdog yet.
void NcclHandle::join(const NcclUniqueId& id) {
  constexpr const char* kFunction = "ncclCommInitRankConfig";
  NcclComm* comm = nullptr;
  const NcclResult result = call(kFunction, join_.api.comm_init_rank, &comm, size_, id, rank_);
  comm_ = comm;
  require_taken(kFunction, result);
  poll(kFunction);
  if (size_ > 1) connect();
}

// NCCL connects two ranks in the first group in which they send or receive, and that group waits
// until both sides and all their peers have issued theirs. In a program's own groups the ranks
// could deadlock. Sends of no elements connect too: taskAppend in NCCL's src/enqueue.cc (2.14
// to 2.28) discards only empty collectives.
void NcclHandle::connect() {
  group(nullptr, [&] {
    for (int i = 1; i < size_; ++i) {
      send(nullptr, 0, Dtype::f32, (rank_ + i) % size_);
      receive(nullptr, 0, Dtype::f32, (rank_ + size_ - i) % size_);
    }
  });
}

NcclUniqueId NcclHandle::unique_id() const {
  NcclUniqueId id;
  take("ncclGetUniqueId", join_.api.get_unique_id, &id);
  return id;
}

NcclComm* NcclHandle::comm() const {
  NcclComm* const comm = comm_;
  if (!comm) throw CommunicationError("this rank has left NCCL");
  return comm;
}

void NcclHandle::require_taken(const char* function, NcclResult result) const {
  if (result != NcclResult::success && result != NcclResult::in_progress)
    throw CommunicationError(nccl_error_text(join_.api, function, result, comm_));
}

void NcclHandle::group(void* stream, const std::function<void()>& calls) {
  const std::lock_guard turn(turn_);
  (void)comm();
  stream_ = stream;
  take("ncclGroupStart", join_.api.group_start);
  try {
    calls();
  } catch (...) {
    // An open group would take this thread's next calls.
    (void)call("ncclGroupEnd", join_.api.group_end);
    throw;
  }
  take("ncclGroupEnd", join_.api.group_end);
  poll("ncclGroupEnd");
}

void NcclHandle::poll(const char* what) const {
  NcclComm* const comm = this->comm();
  const int64_t began = running_nanoseconds();
  for (int polls = 1; !is_idle(comm, what); ++polls) {
    require_in_time(what, began);
    rest_after_poll(polls);
  }
}

// Whether NCCL has nothing in progress.
bool NcclHandle::is_idle(NcclComm* comm, const char* what) const {
  NcclResult state = NcclResult::success;
  take("ncclCommGetAsyncError", join_.api.comm_get_async_error, comm, &state);
  require_taken(what, state);
  return state == NcclResult::success;
}

void NcclHandle::require_in_time(const char* what, int64_t began) const {
  others_.require_running();
  if (timeout_ > 0 && running_nanoseconds() - began > timeout_)
    throw CommunicationError(
        str(what, " was not done within ", human_time(timeout_),
            ". If the GPUs are only slow, raise --timeout (0 waits forever); else run again with "
            "NCCL_DEBUG=INFO, and look for the first WARN"));
}

// Returns when the watchdog no longer uses the backend, which may end before it.
void NcclHandle::watch(Watched operation, Backend& backend) {
  if (!watchdog_.joinable()) {
    const auto select =
        std::make_shared<std::packaged_task<void()>>([&] { backend.select_for_this_thread(); });
    auto selected = select->get_future();
    watchdog_ = start_thread("NCCL watchdog", [this, select](const std::stop_token& stop) {
      for ((*select)(); !stop.stop_requested() && look();) std::this_thread::sleep_for(kInterval);
    });
    selected.get();
  }
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
}

std::optional<NcclHandle::Watched> NcclHandle::oldest() const {
  const std::lock_guard lock(mutex_);
  if (operations_.empty()) return {};
  return operations_.front();
}

void NcclHandle::set_done(int64_t record) {
  const std::lock_guard lock(mutex_);
  std::erase_if(operations_, [&](const Watched& one) { return one.record == record; });
  others_.set_state(record, CallState::done);
}

void NcclHandle::wait_for_operations() {
  for (int polls = 1; look() && oldest(); ++polls) rest_after_poll(polls);
}

// Asks without the mutex: CUDA may make it wait for a synchronisation of the rank's thread.
bool NcclHandle::look() {
  for (auto one = oldest(); one; one = oldest()) {
    try {
      if (!one->moved->done()) {
        if (std::unique_lock turn(turn_, std::try_to_lock); turn && comm_)
          (void)is_idle(comm_, "the transfer");
        require_in_time("the transfer", one->began);
        return true;
      }
    } catch (const std::exception& error) {
      others_.fail(one->call, error.what());
      abort();
      return false;
    }
    set_done(one->record);
  }
  return true;
}

void NcclHandle::finish() {
  watchdog_ = {};
  if (!comm_) return;
  take("ncclCommFinalize", join_.api.comm_finalize, comm());
  poll("ncclCommFinalize");
  NcclComm* const comm = comm_.exchange(nullptr);  // from here there is nothing to abort
  take("ncclCommDestroy", join_.api.comm_destroy, comm);
}

void NcclHandle::abort() noexcept {
  std::unique_lock turn(turn_, std::defer_lock);
  for (int tries = 0; comm_ && !turn.try_lock() && tries < 1000; ++tries)
    std::this_thread::sleep_for(1ms);
  NcclComm* const comm = comm_.exchange(nullptr);
  if (turn) turn.unlock();
  if (comm) (void)call("ncclCommAbort", join_.api.comm_abort, comm);  // there was an error
}

}  // namespace zl
