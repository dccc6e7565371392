// One turn of a loop that waits for another thread without sleeping.
#pragma once

#include <thread>

namespace zl {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace zl
