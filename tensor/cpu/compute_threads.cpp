#include "tensor/cpu/compute_threads.h"

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "tensor/error.h"
#include "tensor/platform/spin_pause.h"

namespace zl {
namespace {

std::atomic<int> threads_of_each_rank{1};

// Of all teams of this process: parts that were offered or begun and are not computed yet.
std::atomic<int64_t> parts_at_work{0};

thread_local bool inside_a_part = false;

// The number of spins before a thread sleeps: longer than a rank takes from one kernel to the next.
// Without a free core a thread sleeps at once, because it would keep a part from being computed.
constexpr int kSpins = 4000;

bool a_core_is_free() {
  static const int64_t cores = std::thread::hardware_concurrency();
  return parts_at_work.load(std::memory_order_relaxed) < cores;
}

struct Parts {
  void (*run)(const void* job, int64_t part) = nullptr;
  const void* job = nullptr;

  // Computes a part. Returns its exception, or null.
  std::exception_ptr error_of(int64_t part) const noexcept {
    std::exception_ptr error;
    inside_a_part = true;
    try {
      run(job, part);
    } catch (...) {
      error = std::current_exception();
    }
    inside_a_part = false;
    --parts_at_work;
    return error;
  }
};

// A worker computes one part at a time. The caller offers a part; the worker takes it, unless the
// caller takes it back first.
class Worker {
 public:
  explicit Worker(int64_t part) : part_(part), thread_([this] { work(); }) {}
  ~Worker() {
    state_ = State::ended;
    state_.notify_one();
  }

  void offer(const Parts& parts) {
    parts_ = parts;
    state_ = State::offered;
    state_.notify_one();
  }
  // Computes the part on the caller's thread if the worker has not begun.
  void take_back() {
    State offered = State::offered;
    if (state_.compare_exchange_strong(offered, State::idle)) error_ = parts_.error_of(part_);
  }
  // Waits until the part has been computed. Returns its exception, or null.
  std::exception_ptr finish() {
    wait_while(State::taken);
    return std::exchange(error_, nullptr);
  }

 private:
  enum class State : int { idle, offered, taken, ended };

  void wait_while(State state) const {
    for (int i = a_core_is_free() ? kSpins : 0; i > 0 && state_ == state; --i) spin_pause();
    state_.wait(state);
  }

  void work() {
    for (;;) {
      wait_while(State::idle);
      State offered = State::offered;
      if (state_.compare_exchange_strong(offered, State::taken)) {
        error_ = parts_.error_of(part_);
        state_ = State::idle;
        state_.notify_one();
      } else if (offered == State::ended) {
        return;
      }
    }
  }

  alignas(64) std::atomic<State> state_{State::idle};
  // The caller's while the worker is idle, the worker's while the part is taken.
  Parts parts_;
  std::exception_ptr error_;
  const int64_t part_;
  std::jthread thread_;  // ends first
};

class Team {
 public:
  explicit Team(int64_t threads) : threads_(threads) {
    for (int64_t i = 1; i < threads; ++i) workers_.emplace_back(i);
  }
  int64_t threads() const { return threads_; }

  void run(int64_t count, const Parts& parts) {
    parts_at_work += count;
    for (int64_t i = 1; i < count; ++i) workers_[size_t(i - 1)].offer(parts);
    std::exception_ptr first = parts.error_of(0);
    for (int64_t i = 1; i < count; ++i) workers_[size_t(i - 1)].take_back();
    for (int64_t i = 1; i < count; ++i) {
      std::exception_ptr error = workers_[size_t(i - 1)].finish();
      if (!first) first = std::move(error);
    }
    if (first) std::rethrow_exception(first);
  }

 private:
  const int64_t threads_;
  std::deque<Worker> workers_;
};

}  // namespace

int compute_threads() { return threads_of_each_rank.load(std::memory_order_relaxed); }

void set_compute_threads(int threads) {
  require(threads >= 1 && threads <= kMostComputeThreads, "a rank computes on 1 to ",
          kMostComputeThreads, " threads, not ", threads);
  threads_of_each_rank = threads;
}

int64_t parallel_parts(int64_t n, int64_t grain) {
  const int64_t threads = compute_threads();
  if (threads == 1 || n <= grain || inside_a_part) return 1;
  return std::min(threads, (n + grain - 1) / grain);
}

void run_parts(int64_t parts, void (*run)(const void* job, int64_t part), const void* job) {
  thread_local std::unique_ptr<Team> team;
  if (!team || team->threads() != compute_threads()) {
    team.reset();
    team = std::make_unique<Team>(compute_threads());
  }
  team->run(parts, {run, job});
}

}  // namespace zl
