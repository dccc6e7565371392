#include "dist/run_ranks.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "dist/lane/lane_communicator.h"
#include "dist/threads/thread_communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

thread_local std::string last_report;

struct RankError {
  std::exception_ptr error;
  bool repeats = false;  // the failure that another rank caused
};

class Run {
 public:
  Run(int size, const std::function<void(Communicator&)>& body, const RankOptions& options)
      : size_(size),
        body_(body),
        options_(options),
        rendezvous_(size, options.timeout, options.lane ? 2 * size : size) {
    for (int r = 0; r < size; ++r) {
      events_.emplace_back(r, options.event_capacity);
      if (options.lane) events_of_lanes_.emplace_back(r, options.event_capacity);
    }
  }

  void run() {
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < size_; ++r) start(r, threads);
      watch();
    }
    last_report = rendezvous_.failed() ? rendezvous_.failure_report() : "";
    rethrow_first();
  }

 private:
  static std::string could_not_start(const std::string& thread, const std::exception& error) {
    return str(thread, " could not start (", error.what(),
               "); try fewer ranks, or raise the limit on threads (ulimit -u, or the container's)");
  }

  void start(int rank, std::vector<std::jthread>& threads) {
    if (failed_to_start_) return;
    try {
      threads.emplace_back([this, rank] { run_rank(rank); });
    } catch (const std::exception& error) {  // mostly: the system gives no more threads
      rendezvous_.fail(could_not_start(str("rank ", rank), error));
      failed_to_start_ = true;
      std::lock_guard lock(mutex_);
      ended_ += size_ - rank;
    }
  }

  void run_rank(int rank) {
    pthread_setname_np(pthread_self(), str("rank ", rank).c_str());
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = options_.lane ? with_lane(rank) : on_threads(rank, events_[size_t(rank)]);
      body_(*communicator);
      communicator->finish();
    } catch (const std::exception& error) {
      failed(rank, error.what(), repeats(rank, communicator.get(), &error));
    } catch (...) {
      failed(rank, "an exception that is no std::exception",
             repeats(rank, communicator.get(), nullptr));
    }
    rendezvous_.rank_ended(rank);
    communicator.reset();  // while watch() still runs: the end of a transport may hang
    std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  std::unique_ptr<Communicator> on_threads(int rank, EventStream& events) {
    return std::make_unique<ThreadCommunicator>(rank, size_, rendezvous_, events);
  }

  std::unique_ptr<Communicator> with_lane(int rank) {
    auto inner = on_threads(rank, events_of_lanes_[size_t(rank)]);
    LaneFailure failure{.fail = [this](const std::string& why) { rendezvous_.fail(why); },
                        .failed = [this] { return rendezvous_.failed(); }};
    try {
      return std::make_unique<LaneCommunicator>(std::move(inner), events_[size_t(rank)],
                                                options_.link, std::move(failure));
    } catch (const std::system_error& error) {
      throw CommunicationError(could_not_start(str("the lane of rank ", rank), error));
    }
  }

  // Whether the exception that a rank has thrown is the failure that another rank caused. The lane
  // may have met that failure while the rank threw a cause.
  bool repeats(int rank, const Communicator* communicator, const std::exception* error) const {
    const auto* lane = dynamic_cast<const LaneCommunicator*>(communicator);
    const bool may_repeat =
        !lane || (lane->has_rethrown() && dynamic_cast<const CommunicationError*>(error));
    return may_repeat && rendezvous_.has_reported(rank);
  }

  void failed(int rank, const char* what, bool repeats) {
    {  // before the others hear of it, so that this error comes before theirs
      std::lock_guard lock(mutex_);
      errors_.push_back({std::current_exception(), repeats});
    }
    rendezvous_.fail(str("rank ", rank, " stopped: ", what));
  }

  // The caller's thread: checks deadlines until all ranks have ended.
  void watch() {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] { return ended_ == size_; };
    if (options_.timeout.count() <= 0) return changed_.wait(lock, all_ended);
    const auto step = std::clamp(options_.timeout / 16, std::chrono::milliseconds(1),
                                 std::chrono::milliseconds(250));
    std::optional<std::chrono::steady_clock::time_point> failed_at;
    while (!changed_.wait_for(lock, step, all_ended)) {
      lock.unlock();
      rendezvous_.check_deadlines();
      const auto now = std::chrono::steady_clock::now();
      if (rendezvous_.failed() && !failed_at) failed_at = now;
      if (failed_at && now - *failed_at > options_.timeout + options_.grace) give_up();
      lock.lock();
    }
  }

  // A thread cannot be ended from outside, so the process ends instead.
  [[noreturn]] void give_up() {
    const std::string text =
        str(rendezvous_.failure_report(), "not all ranks ended within timeout and grace; now:\n",
            rendezvous_.report());
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
    std::_Exit(4);
  }

  void rethrow_first() {
    if (failed_to_start_) throw CommunicationError(rendezvous_.failure());
    const auto cause = std::ranges::find(errors_, false, &RankError::repeats);
    if (cause != errors_.end()) std::rethrow_exception(cause->error);
    if (!errors_.empty()) std::rethrow_exception(errors_.front().error);
    if (rendezvous_.failed()) throw CommunicationError(rendezvous_.failure());
  }

  const int size_;
  const std::function<void(Communicator&)>& body_;
  const RankOptions options_;
  std::deque<EventStream> events_, events_of_lanes_;  // outlive the records in rendezvous_
  Rendezvous rendezvous_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  bool failed_to_start_ = false;
  std::vector<RankError> errors_;  // in order of time
};

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options) {
  require(size >= 1, "there must be at least 1 rank, not ", size);
  require(size <= kMostRanks, size, " ranks are too many for one process, which runs up to ",
          kMostRanks, " as threads; use several processes, or `plan`, which needs no ranks");
  require(options.lane || !options.link.simulated(),
          "a simulated link needs lanes; set RankOptions::lane");
  last_report.clear();
  Run(size, body, options).run();
}

std::string last_failure_report() { return last_report; }
void set_last_failure_report(std::string report) { last_report = std::move(report); }

}  // namespace zl
