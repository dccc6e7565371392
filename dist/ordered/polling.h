// The pauses of a rank that waits for a transport which says only when asked whether it is done.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace zl {

// How long a rank sleeps after its n-th poll. Longer each time, so that slow operations do not keep
// a core busy, but at most 50 us: NCCL takes a group in 50 to 100 us, and a step has dozens.
inline std::chrono::microseconds pause_after_poll(int polls) {
  using std::chrono::microseconds;
  if (polls <= 64) return microseconds(0);
  return std::min(microseconds(10) * (1 << std::min(polls - 65, 3)), microseconds(50));
}

inline void rest_after_poll(int polls) {
  const auto pause = pause_after_poll(polls);
  pause.count() > 0 ? std::this_thread::sleep_for(pause) : std::this_thread::yield();
}

}  // namespace zl
