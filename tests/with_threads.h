// The number of compute threads while an object of this lives; 1 afterwards. Make it outside of
// ranks.
#pragma once

#include "tensor/cpu/compute_threads.h"

namespace zl::test {

struct WithThreads {
  explicit WithThreads(int threads) { set_compute_threads(threads); }
  ~WithThreads() { set_compute_threads(1); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;
};

}  // namespace zl::test
