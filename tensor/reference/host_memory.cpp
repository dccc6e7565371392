// Memory of the reference backend, the clock of the host, and the workspace of the kernels: one
// buffer for each matrix or row of sums that a formula names and that no tensor holds.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "tensor/backend.h"

namespace zl {

constexpr std::align_val_t kAlignment{64};  // [B] a cache line

int64_t Backend::workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const {
  const int64_t size = size_of(compute_type(dtype));
  const bool converts = dtype != compute_type(dtype);
  switch (kernel) {
    case KernelId::matmul: {  // A, B and C in fp32, if they are stored in 16 bits
      const int64_t M = dims[0], N = dims[1], K = dims[2];
      return converts ? size * (M * K + K * N + M * N) : 0;
    }
    // Of one head: Q, K, V, Y and P; in backward Q, K, V, dY, dQ, dK, dV, P and dP.
    case KernelId::attention: return size * dims[1] * (4 * dims[3] + dims[1]);
    case KernelId::attention_backward: return size * dims[1] * (7 * dims[3] + 2 * dims[1]);
    case KernelId::embedding_backward: return size * dims[2];  // the sum of a token's rows
    default: return 0;
  }
}

void* Backend::allocate(int64_t bytes) {
  return ::operator new(size_t(bytes), kAlignment, std::nothrow);
}

void Backend::release(void* segment, int64_t) noexcept { ::operator delete(segment, kAlignment); }

void Backend::poison(void* block, int64_t bytes) noexcept {
  constexpr uint64_t nan = 0x7ff1'7ff1'7ff1'7ff1u;  // a signalling NaN in every type
  for (int64_t i = 0; i < bytes; i += 8)
    std::memcpy(static_cast<char*>(block) + i, &nan, size_t(std::min<int64_t>(8, bytes - i)));
}

std::function<double()> Backend::timing(Stream, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  synchronize();
  const auto begin = Clock::now();
  work();
  synchronize();
  return
      [seconds = std::chrono::duration<double>(Clock::now() - begin).count()] { return seconds; };
}

Backend& reference_backend() {
  static Backend backend;
  return backend;
}

}  // namespace zl
