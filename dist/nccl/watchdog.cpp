#include "dist/nccl/watchdog.h"

#include <algorithm>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

// How often it looks: often enough that a deadline is kept, and seldom enough to cost nothing.
NcclHandle::Clock::duration interval_for(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::clamp<std::chrono::milliseconds>(timeout / 16, 1ms, 100ms)
                             : 100ms;
}

}  // namespace

NcclWatchdog::NcclWatchdog(const NcclJoin& join, NcclHandle& handle, FingerprintCheck& others)
    : rank_(join.rank),
      timeout_(join.timeout),
      interval_(interval_for(join.timeout)),
      handle_(handle),
      others_(others) {}

void NcclWatchdog::watch(Watched operation, Backend& backend) {
  if (!thread_.joinable()) start(backend);
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
}

// Returns when the thread no longer uses the backend, which may end before it.
void NcclWatchdog::start(Backend& backend) {
  std::string problem;
  thread_ = std::thread([this, &backend, &problem] {
    try {
      backend.select_for_this_thread();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    {
      const std::lock_guard lock(mutex_);
      started_ = true;
    }
    changed_.notify_all();
    run();
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
  if (!problem.empty()) throw CommunicationError(str("the watchdog of this rank: ", problem));
}

void NcclWatchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<NcclWatchdog::Watched> NcclWatchdog::oldest() const {
  const std::lock_guard lock(mutex_);
  if (operations_.empty()) return {};
  return operations_.front();
}

void NcclWatchdog::waited_for(int64_t record) {
  const std::lock_guard lock(mutex_);  // else it may be set to done in between
  if (std::ranges::count(operations_, record, &Watched::record) > 0)
    others_.set_state(record, CallState::moving);
}

void NcclWatchdog::set_done(int64_t record) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(operations_, [&](const Watched& one) { return one.record == record; }) > 0)
    others_.set_state(record, CallState::done);
}

void NcclWatchdog::require_no_failure(const Call& call) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failure_ != Failure::is_reported; });
    if (failure_ == Failure::none) return;
  }
  others_.throw_failure(call);
}

// Its sentence says more than that of a rank that comes to the next call and misses this one, so it
// must not be late.
NcclWatchdog::Clock::duration NcclWatchdog::until_next_look() const {
  if (timeout_.count() <= 0 || operations_.empty()) return interval_;
  const Clock::duration left = operations_.front().began + timeout_ - Clock::now();
  return std::clamp<Clock::duration>(left, 1ms, interval_);
}

void NcclWatchdog::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const Clock::time_point before = Clock::now();
      changed_.wait_for(lock, until_next_look(), [this] { return stopping_; });
      if (stopping_ || failure_ != Failure::none) return;
      // A process that was stopped meanwhile is not blamed for it.
      const Clock::duration slept = Clock::now() - before;
      if (slept > interval_ + 1s)
        for (Watched& operation : operations_) operation.began += slept;
    }
    look();
  }
}

// Asks without the mutex: CUDA may make it wait for a synchronisation of the rank's thread.
void NcclWatchdog::look() {
  for (auto operation = oldest(); operation; operation = oldest()) {
    try {
      if (!operation->moved->done()) return handle_.look("the transfer", operation->began);
    } catch (const std::exception& error) {
      return fail(operation->call, error.what());
    }
    set_done(operation->record);
  }
}

void NcclWatchdog::fail(const Call& call, const std::string& why) {
  const std::string text =
      str("rank ", call.group.of_run(rank_), " in ", describe(call), ": ", why);
  {
    const std::lock_guard lock(mutex_);
    failure_ = Failure::is_reported;
  }
  try {
    others_.fail(text);
  } catch (const std::exception&) {  // no memory for the report: the others end at their deadlines
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = Failure::known;
  }
  changed_.notify_all();
  handle_.abort();
}

}  // namespace zl
