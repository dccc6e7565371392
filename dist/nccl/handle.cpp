#include "dist/nccl/handle.h"

#include <algorithm>
#include <future>
#include <utility>

#include "dist/flight_recorder.h"
#include "dist/nccl/errors.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

// How often the watchdog looks: often enough that a deadline is kept, and seldom enough to cost
// nothing.
NcclHandle::Clock::duration interval_for(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::clamp<std::chrono::milliseconds>(timeout / 16, 1ms, 100ms)
                             : 100ms;
}

}  // namespace

NcclHandle::NcclHandle(const NcclJoin& join, ControlClient& others)
    : join_(join), others_(others), interval_(interval_for(join.timeout)) {}

NcclHandle::~NcclHandle() {
  stop();
  abort();
}

// The rank has no watchdog yet.
void NcclHandle::join(const NcclUniqueId& id) {
  constexpr const char* kFunction = "ncclCommInitRankConfig";
  NcclComm* comm = nullptr;
  const NcclResult result =
      call(kFunction, [&] { return join_.api.comm_init_rank(&comm, join_.size, id, join_.rank); });
  comm_ = comm;
  require_taken(kFunction, result, comm);
  poll(kFunction);
  if (join_.size > 1) connect();
}

// NCCL connects two ranks in the first group in which they send or receive, and that group waits
// until both sides and all their peers have issued theirs. In a program's own groups the ranks
// could deadlock. Sends of no elements connect too: taskAppend in NCCL's src/enqueue.cc (2.14
// to 2.28) discards only empty collectives.
void NcclHandle::connect() {
  const NcclData nothing{nullptr, nullptr, 0, NcclType::float32};
  const NcclStream stream{comm_, nullptr};
  group([&] {
    for (int i = 1; i < join_.size; ++i) {
      const int next = (join_.rank + i) % join_.size,
                last = (join_.rank + join_.size - i) % join_.size;
      take("ncclSend", [&] { return join_.api.send(nothing, next, stream); });
      take("ncclRecv", [&] { return join_.api.receive(nothing, last, stream); });
    }
  });
}

NcclComm* NcclHandle::comm() const {
  NcclComm* const comm = comm_;
  if (!comm) throw CommunicationError("this rank has left NCCL");
  return comm;
}

// Says for reports where the rank is. If two threads are inside NCCL, it names the function that
// was called first: there NCCL hangs.
NcclResult NcclHandle::call(const char* function, const std::function<NcclResult()>& ask) const {
  const char* none = nullptr;
  const bool first = join_.inside.compare_exchange_strong(none, function);
  const NcclResult result = ask();
  if (first) join_.inside = nullptr;
  return result;
}

void NcclHandle::take(const char* function, const std::function<NcclResult()>& ask) const {
  require_taken(function, call(function, ask), comm_);
}

void NcclHandle::require_taken(const char* function, NcclResult result, NcclComm* comm) const {
  if (result != NcclResult::success && result != NcclResult::in_progress)
    throw CommunicationError(nccl_error_text(join_.api, function, result, comm));
}

void NcclHandle::group(const std::function<void()>& calls) {
  const std::lock_guard turn(turn_);
  (void)comm();
  take("ncclGroupStart", join_.api.group_start);
  try {
    calls();
  } catch (...) {
    (void)call("ncclGroupEnd",
               join_.api.group_end);  // an open group would take this thread's next calls
    throw;
  }
  take("ncclGroupEnd", join_.api.group_end);
  poll("ncclGroupEnd");
}

void NcclHandle::poll(const char* what, const std::function<bool()>& done) const {
  NcclComm* const comm = this->comm();
  Clock::time_point began = Clock::now(), last = began;
  for (int polls = 1;; ++polls) {
    const Clock::time_point now = Clock::now();
    if (now - last > 1s) began += now - last;  // this process was stopped meanwhile
    last = now;
    if (is_idle(comm, what) && done()) return;
    require_in_time(what, began);
    rest_after_poll(polls);
  }
}

// Whether NCCL has nothing in progress.
bool NcclHandle::is_idle(NcclComm* comm, const char* what) const {
  constexpr const char* kFunction = "ncclCommGetAsyncError";
  NcclResult state = NcclResult::success;
  require_taken(kFunction,
                call(kFunction, [&] { return join_.api.comm_get_async_error(comm, &state); }),
                comm);
  if (state == NcclResult::remote_error) await_report();
  require_taken(what, state, comm);
  return state == NcclResult::success;
}

// Another rank has gone and is about to report why, which says more than NCCL can. Returns if it
// does not.
void NcclHandle::await_report() const {
  constexpr std::chrono::milliseconds most{300};
  const Clock::time_point until =
      Clock::now() + (join_.timeout.count() > 0 ? std::min(most, join_.timeout / 8) : most);
  while (!others_.failed() && Clock::now() < until) std::this_thread::sleep_for(1ms);
  if (others_.failed()) throw CommunicationError("another rank has failed");
}

void NcclHandle::require_in_time(const char* what, Clock::time_point began) const {
  if (others_.failed()) throw CommunicationError("another rank has failed");
  if (join_.timeout.count() > 0 && Clock::now() - began > join_.timeout)
    throw CommunicationError(str(
        what, " was not done within ", human_time(std::chrono::nanoseconds(join_.timeout).count()),
        ". If the GPUs are only slow, raise --timeout (0 waits forever); else run again with "
        "NCCL_DEBUG=INFO, and look for the first WARN"));
}

// Returns when the watchdog no longer uses the backend, which may end before it.
void NcclHandle::watch(Watched operation, Backend& backend) {
  if (!watchdog_.joinable()) {
    std::packaged_task<void()> select([&] { backend.select_for_this_thread(); });
    auto selected = select.get_future();
    watchdog_ = std::thread([this, select = std::move(select)]() mutable {
      select();
      run();
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

void NcclHandle::waited_for(int64_t record) {
  const std::lock_guard lock(mutex_);  // else it may be set to done in between
  if (std::ranges::count(operations_, record, &Watched::record) > 0)
    others_.set_state(record, CallState::moving);
}

void NcclHandle::set_done(int64_t record) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(operations_, [&](const Watched& one) { return one.record == record; }) > 0)
    others_.set_state(record, CallState::done);
}

void NcclHandle::wait_for_operations() {
  for (auto one = oldest(); one; one = oldest()) {
    try {
      const std::lock_guard turn(turn_);
      poll("the transfer", [&] { return one->moved->done(); });
    } catch (const std::exception& error) {
      fail(one->call, error.what());
    }
    set_done(one->record);
  }
}

// Its sentence says more than that of a rank that comes to the next call and misses this one, so it
// must not be late.
NcclHandle::Clock::duration NcclHandle::until_next_look() const {
  if (join_.timeout.count() <= 0 || operations_.empty()) return interval_;
  const Clock::duration left = operations_.front().began + join_.timeout - Clock::now();
  return std::clamp<Clock::duration>(left, 1ms, interval_);
}

void NcclHandle::run() {
  do {
    std::unique_lock lock(mutex_);
    const Clock::time_point before = Clock::now();
    if (stopped_.wait_for(lock, until_next_look(), [this] { return stopping_; })) return;
    // A process that was stopped meanwhile is not blamed for it.
    const Clock::duration slept = Clock::now() - before;
    if (slept > interval_ + 1s)
      for (Watched& operation : operations_) operation.began += slept;
  } while (look());
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
      report(one->call, error.what());
      abort();
      return false;
    }
    set_done(one->record);
  }
  return true;
}

void NcclHandle::report(const Call& call, const std::string& why) noexcept try {
  others_.fail(str("rank ", call.group.of_run(join_.rank), " in ", describe(call), ": ", why));
} catch (const std::exception&) {  // no memory for the report: the others end at their deadlines
}

void NcclHandle::fail(const Call& call, const std::string& why) {
  report(call, why);
  abort();
  others_.throw_failure(call);
}

void NcclHandle::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
}

void NcclHandle::finish() {
  stop();
  if (!comm_) return;
  take("ncclCommFinalize", [&] { return join_.api.comm_finalize(comm_); });
  poll("ncclCommFinalize");
  NcclComm* const comm = comm_.exchange(nullptr);  // from here there is nothing to abort
  require_taken("ncclCommDestroy",
                call("ncclCommDestroy", [&] { return join_.api.comm_destroy(comm); }), nullptr);
}

void NcclHandle::abort() noexcept {
  NcclComm* comm = nullptr;
  {
    std::unique_lock turn(turn_, std::defer_lock);
    for (int tries = 0; comm_ && !turn.try_lock() && tries < 1000; ++tries)
      std::this_thread::sleep_for(1ms);
    comm = comm_.exchange(nullptr);
  }
  if (!comm) return;
  (void)call("ncclCommAbort", [&] { return join_.api.comm_abort(comm); });  // there was an error
}

}  // namespace zl
