#include "tensor/cpu/cpu_backend.h"

#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// AddressSanitizer sees use after free only if freed blocks go back to the system.
#if defined(__SANITIZE_ADDRESS__)
#define ZEROLAB_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define ZEROLAB_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define ZEROLAB_ADDRESS_SANITIZER 0
#endif

namespace zl {
namespace {

constexpr int64_t kCacheLine = 64, kHugePage = int64_t(2) << 20;  // [B]

std::align_val_t alignment(int64_t bytes) {
  return std::align_val_t(size_t(bytes <= kHugePage ? kCacheLine : kHugePage));
}

}  // namespace

// A segment is addresses: its pages take memory when they are first touched. So it is large, and
// blocks of most sizes share it.
int64_t CpuBackend::segment() const { return ZEROLAB_ADDRESS_SANITIZER ? 0 : int64_t(128) << 20; }

// With huge pages the processor translates fewer addresses. The first 2 MiB of a segment stay in
// small pages: a small program would waste most of a huge one.
void* CpuBackend::allocate(int64_t bytes) {
  void* const segment = ::operator new(size_t(bytes), alignment(bytes), std::nothrow);
#if defined(MADV_HUGEPAGE)
  if (segment && bytes > kHugePage) {
    madvise(segment, size_t(kHugePage), MADV_NOHUGEPAGE);
    madvise(static_cast<char*>(segment) + kHugePage, size_t(bytes - kHugePage), MADV_HUGEPAGE);
  }
#endif
  return segment;
}

void CpuBackend::release(void* segment, int64_t bytes) noexcept {
  ::operator delete(segment, alignment(bytes));
}

int64_t CpuBackend::workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const {
  const int64_t size = size_of(compute_type(dtype));
  switch (kernel) {
    case KernelId::matmul: return matmul_workspace(dims[0], dims[1], dims[2], dtype);
    case KernelId::attention: return attention_workspace(dims, dtype, false);
    case KernelId::attention_backward: return attention_workspace(dims, dtype, true);
    case KernelId::layer_norm_backward: return 2 * dims[1] * size;  // sums of dweight and dbias
    case KernelId::sum_rows:
      return dims[1] * size;  // the sums
    // The first row of each token, and the next one of each row.
    case KernelId::embedding_backward: return (dims[0] + dims[1]) * int64_t(sizeof(int32_t));
    default: return 0;
  }
}

Backend& cpu_backend() {
  static CpuBackend backend;  // stateless
  return backend;
}

#ifndef ZEROLAB_ARCH_NAME
#define ZEROLAB_ARCH_NAME "unknown"
#endif
const char* cpu_architecture() { return ZEROLAB_ARCH_NAME; }

}  // namespace zl
