// The CPU's kernels, watched: how many blocks of memory they took from the system.
#pragma once

#include <atomic>

#include "tensor/cpu/cpu_backend.h"

namespace zl::cli {

// Counts what Memory could not hand out again. A kernel that it does not know runs all the same.
class CountingBackend : public CpuBackend {
 public:
  // Ranks may share a count.
  explicit CountingBackend(std::atomic<int64_t>& allocations) : allocations_(allocations) {}
  void* allocate(int64_t bytes) override;

 private:
  std::atomic<int64_t>& allocations_;
};

}  // namespace zl::cli
