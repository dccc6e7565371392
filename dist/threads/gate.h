// A gate that opens when all ranks have arrived, round after round, unless it failed before.
//
// One 32-bit word holds the round, how many ranks have arrived in it, and whether the gate failed.
// So "the last rank arrived" and "it failed" are ordered: all ranks of a round see it open, or all
// see it fail. After a failure ranks no longer count as arrived, and rounds that had opened stay
// open.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensor/platform/spin_pause.h"

namespace zl {

class Gate {
 public:
  enum class State { closed, open, failed };

  explicit Gate(int ranks) : ranks_(uint32_t(ranks)) {}  // 1 to 127

  // Takes part in the current round and returns it. Does not wait.
  uint32_t arrive() {
    uint32_t word = word_.load();
    for (;;) {
      if (word & kFailed) return round_in(word);
      const bool last = (word & kArrived) + 1 == ranks_;
      const uint32_t next = last ? next_round(word) : word + 1;
      if (!word_.compare_exchange_weak(word, next)) continue;
      if (last) word_.notify_all();
      return round_in(word);
    }
  }
  // Returns when the round is open or failed. Looks `spins` times before it sleeps, for ranks that
  // each have a core.
  State wait(uint32_t round, int spins) const {
    for (;; --spins) {
      const uint32_t word = word_.load();
      if (const State state = state_in(word, round); state != State::closed) return state;
      spins > 0 ? spin_pause() : word_.wait(word);
    }
  }
  void fail() {
    word_.fetch_or(kFailed);
    word_.notify_all();
  }
  bool failed() const { return word_.load() & kFailed; }

 private:
  static constexpr uint32_t kArrived = 0x7f, kFailed = 0x80000000u, kRound = 0x7fffff80u;
  static uint32_t round_in(uint32_t word) { return (word & kRound) >> 7; }
  // There are 2^24 rounds.
  static uint32_t next_round(uint32_t word) { return ((word & kRound) + kArrived + 1) & kRound; }
  static State state_in(uint32_t word, uint32_t round) {
    if (round_in(word) != round) return State::open;
    return word & kFailed ? State::failed : State::closed;
  }

  alignas(64) std::atomic<uint32_t> word_{0};
  const uint32_t ranks_;
};

}  // namespace zl
