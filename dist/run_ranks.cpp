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
#include <vector>

#include "dist/threads/thread_communicator.h"
#include "tensor/error.h"

namespace zl {
namespace {

thread_local std::string last_report;

class Run {
 public:
  Run(int size, const std::function<void(Communicator&)>& body, const RankOptions& options)
      : size_(size),
        body_(body),
        options_(options),
        rendezvous_(size, options.timeout, options.lane ? 2 * size : size) {
    for (int i = 0; i < (options.lane ? 2 * size : size); ++i) events_.emplace_back(i % size);
  }

  void run() {
    {
      std::vector<std::jthread> threads;
      int rank = 0;
      try {
        for (; rank < size_; ++rank)
          threads.push_back(
              start_thread(str("rank ", rank), [this, rank](auto&) { run_rank(rank); }));
      } catch (const CommunicationError& error) {
        rendezvous_.fail(error.what());
        std::lock_guard lock(mutex_);
        cause_ = std::current_exception();  // also if the ranks that did start have failed
        ended_ += size_ - rank;
      }
      watch();
    }
    last_report = rendezvous_.failure().report;
    for (const std::exception_ptr& error : {cause_, repeated_})
      if (error) std::rethrow_exception(error);
    if (rendezvous_.failed()) throw CommunicationError(rendezvous_.failure().why);
  }

 private:
  void run_rank(int rank) {
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = communicator_of(rank);
      body_(*communicator);
      communicator->finish();
    } catch (const RunHasFailed& error) {
      failed(repeated_, std::current_exception(), error.what());
    } catch (const std::exception& error) {
      failed(cause_, std::current_exception(), str("rank ", rank, " stopped: ", error.what()));
    } catch (...) {
      failed(cause_, std::current_exception(),
             str("rank ", rank, " stopped: an exception that is no std::exception"));
    }
    rendezvous_.rank_ended(rank);
    communicator.reset();  // while watch() still runs: the end of a transport may hang
    std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  std::unique_ptr<Communicator> communicator_of(int rank) {
    const int own = options_.lane ? size_ + rank : rank;
    auto on_threads = thread_communicator(rank, size_, rendezvous_, events_[size_t(own)]);
    if (!options_.lane) return on_threads;
    return options_.lane(std::move(on_threads), events_[size_t(rank)],
                         {.fail = [this](const std::string& why) { rendezvous_.fail(why); },
                          .failed = [this] { return rendezvous_.failed(); }});
  }

  // Keeps the first error of its kind before the others hear of it.
  void failed(std::exception_ptr& first, const std::exception_ptr& error, const std::string& why) {
    {
      std::lock_guard lock(mutex_);
      if (!first) first = error;
    }
    rendezvous_.fail(why);
  }

  // The caller's thread: looks at the ranks now and then, and when one has ended, until all have.
  void watch() {
    using namespace std::chrono_literals;
    const bool ends = options_.timeout.count() > 0;
    const auto step = ends ? std::clamp(options_.timeout / 16, 1ms, 250ms) : 250ms;
    std::optional<std::chrono::steady_clock::time_point> failed_at;
    std::unique_lock lock(mutex_);
    while (ended_ < size_) {
      const int ended = ended_;
      lock.unlock();
      rendezvous_.check();
      const auto now = std::chrono::steady_clock::now();
      if (rendezvous_.failed() && !failed_at) failed_at = now;
      if (ends && failed_at && now - *failed_at > options_.timeout + options_.grace) give_up();
      lock.lock();
      changed_.wait_for(lock, step, [&] { return ended_ != ended; });
    }
  }

  // A thread cannot be ended from outside, so the process ends instead.
  [[noreturn]] void give_up() {
    const std::string text =
        str(rendezvous_.failure().report, "not all ranks ended within timeout and grace; now:\n",
            rendezvous_.report());
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
    std::_Exit(4);
  }

  const int size_;
  const std::function<void(Communicator&)>& body_;
  const RankOptions options_;
  std::deque<EventStream> events_;  // of the ranks, then of their lanes; outlive rendezvous_
  Rendezvous rendezvous_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  std::exception_ptr cause_, repeated_;  // the first error; the first that another rank caused
};

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options) {
  require(size >= 1, "there must be at least 1 rank, not ", size);
  require(size <= kMostRanks, size, " ranks are too many for one process, which runs up to ",
          kMostRanks, " as threads; use several processes, or `plan`, which needs no ranks");
  Run(size, body, options).run();
}

std::jthread start_thread(const std::string& name,
                          std::function<void(const std::stop_token&)> run) try {
  return std::jthread([name, run = std::move(run)](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), name.c_str());
    run(stop);
  });
} catch (const std::exception& error) {  // mostly: the system gives no more threads
  throw CommunicationError(
      str(name, " could not start (", error.what(),
          "); try fewer ranks, or raise the limit on threads (ulimit -u, or the container's)"));
}

std::string last_failure_report() { return last_report; }
void set_last_failure_report(std::string report) { last_report = std::move(report); }

}  // namespace zl
