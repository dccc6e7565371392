#include "tutorials/zerolab/bench/core_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// The cores that this process may run on.
std::vector<int> core_numbers() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// Where it is refused, the system places threads itself, which is nearly as good.
void stay_on(const std::vector<int>& cores, int thread) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[size_t(thread) % cores.size()], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// The threads of one measurement: they prepare, then take each sample together.
class Crew {
 public:
  Crew(const CoreRun& run, const std::function<Piece(int)>& prepare)
      : run_(run), prepare_(prepare), shares_(size_t(run.cores)), together_(run.cores) {}

  Spread measure() {
    std::vector<std::thread> threads;
    for (int t = 0; t < run_.cores; ++t) threads.emplace_back([this, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return spread_of(std::move(rates_));
  }

 private:
  struct Share {
    Clock::time_point begin, end;
    double done = 0;
  };

  // All wait at the same places, also those that failed: `stopped_` is read only where nobody
  // writes it, so all leave in the same round.
  void work(int thread) {
    stay_on(cores_, thread);
    Piece piece = [] { return 0.0; };
    guarded([&] { piece = prepare_(thread); });
    together_.arrive_and_wait();
    for (int sample = -1; sample < run_.samples && !stopped_; ++sample) {
      together_.arrive_and_wait();
      guarded([&] { shares_[size_t(thread)] = repeat(piece); });
      together_.arrive_and_wait();
      if (thread == 0) count(sample);
      together_.arrive_and_wait();
    }
  }

  Share repeat(const Piece& piece) const {
    Share share{.begin = Clock::now()};
    do share.done += piece();
    while (share.end = Clock::now(), seconds_between(share.begin, share.end) < run_.seconds);
    return share;
  }

  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      stop(std::current_exception());
    }
  }

  void count(int sample) {
    double done = 0;
    Clock::time_point begin = shares_.front().begin, end = shares_.front().end;
    for (const Share& s : shares_)
      done += s.done, begin = std::min(begin, s.begin), end = std::max(end, s.end);
    if (sample >= 0) rates_.push_back(done / seconds_between(begin, end));
    if (interrupt_requested()) stop(std::make_exception_ptr(Interrupted()));
  }

  void stop(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    stopped_ = true;
  }

  const CoreRun run_;
  const std::function<Piece(int)>& prepare_;
  const std::vector<int> cores_ = core_numbers();
  std::vector<Share> shares_;
  std::vector<double> rates_;
  std::barrier<> together_;
  std::mutex mutex_;
  std::exception_ptr error_;
  bool stopped_ = false;
};

// Two threads on two cores, `rounds` round trips in each sample. `say(to, round)` tells the other
// side that its turn in that round has come, `hear(from, round)` waits for one's own.
template <class Say, class Hear>
Spread round_trips(int samples, int rounds, const Say& say, const Hear& hear) {
  const std::vector<int> cores = core_numbers();
  std::vector<double> seconds;
  for (int sample = 0; sample <= samples; ++sample) {
    if (interrupt_requested()) throw Interrupted();
    const int first = sample * rounds + 1;
    std::thread other([&] {
      stay_on(cores, 1);
      for (int i = first; i < first + rounds; ++i) hear(1, i), say(0, i);
    });
    std::thread one([&] {
      stay_on(cores, 0);
      const auto begin = Clock::now();
      for (int i = first; i < first + rounds; ++i) say(1, i), hear(0, i);
      if (sample > 0) seconds.push_back(seconds_between(begin, Clock::now()) / (2.0 * rounds));
    });
    one.join();
    other.join();
  }
  return spread_of(std::move(seconds));
}

}  // namespace

Spread rate_on_cores(const CoreRun& run, const std::function<Piece(int)>& prepare) {
  return Crew(run, prepare).measure();
}

Spread hand_over_spinning(int samples, int rounds) {
  struct alignas(64) Turn {
    std::atomic<int> of{0};
  } turns[2];
  return round_trips(
      samples, rounds,
      [&](int to, int round) { turns[to].of.store(round, std::memory_order_release); },
      [&](int from, int round) {
        // Where the two cores are one, the other needs it.
        for (int i = 1; turns[from].of.load(std::memory_order_acquire) != round; ++i)
          if (i % 100'000 == 0) std::this_thread::yield();
      });
}

Spread hand_over_sleeping(int samples, int rounds) {
  std::mutex mutex;
  struct Turn {
    int of = 0;
    std::condition_variable changed;
  } turns[2];
  return round_trips(
      samples, rounds,
      [&](int to, int round) {
        {
          const std::lock_guard lock(mutex);
          turns[to].of = round;
        }
        turns[to].changed.notify_one();
      },
      [&](int from, int round) {
        std::unique_lock lock(mutex);
        turns[from].changed.wait(lock, [&] { return turns[from].of == round; });
      });
}

}  // namespace zl::cli
