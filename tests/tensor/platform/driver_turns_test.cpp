// Threads that issue operations and threads that call the driver, in turns.
#include "tensor/platform/driver_turns.h"

#include <atomic>
#include <barrier>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

using namespace zl;

namespace {

constexpr int kRanks = 3, kRounds = 200;

// How often a call of the driver was under way when an operation had been issued by some of its
// ranks and not by all.
int calls_beside_operations(bool in_turns) {
  std::atomic<int> issued{0}, beside{0};
  std::atomic<bool> done{false};
  std::barrier all(kRanks);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(20)); };
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        std::optional<IssueTurn> turn;
        if (in_turns) turn.emplace();
        all.arrive_and_wait();
        ++issued;
        pause();
        --issued;
      }
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!done) {
        std::optional<DriverCall> call, nested;
        if (in_turns) call.emplace(), nested.emplace();
        beside += issued > 0;
        pause();
        beside += issued > 0;
      }
    });
  for (int r = 0; r < kRanks; ++r) threads[size_t(r)].join();
  done = true;
  for (size_t t = kRanks; t < threads.size(); ++t) threads[t].join();
  return beside;
}

}  // namespace

TEST_CASE("no thread calls the driver while an operation is not issued by all its ranks",
          "[tensor]") {
  CHECK(calls_beside_operations(true) == 0);
  CHECK(calls_beside_operations(false) > 0);
}

TEST_CASE("a turn to issue may be ended by another thread", "[tensor]") {
  DriverTurns turns;
  turns.begin_issuing();
  std::atomic<bool> called{false};
  std::thread caller([&] {
    turns.begin_call();
    called = true;
    turns.end_call();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(called);
  std::thread([&] { turns.end_issuing(); }).join();
  caller.join();
  CHECK(called);
}
