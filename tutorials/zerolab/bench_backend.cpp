#include "tutorials/zerolab/bench_backend.h"

namespace zl::cli {

void* CountingBackend::allocate(int64_t bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return CpuBackend::allocate(bytes);
}

}  // namespace zl::cli
