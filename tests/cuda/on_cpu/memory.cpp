// The memory of the GPUs: host memory under addresses that the host cannot use.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/cuda/on_cpu/devices.h"
#include "tests/cuda/on_cpu/launches.h"

namespace zl::cuda_on_cpu {
namespace {

// Addresses of GPU n have n + 1 from this bit on. Addresses of the host have zeros there.
constexpr int kShift = 60;
constexpr size_t kMemory = size_t(1) << 30;  // [B] of each

struct Allocation {
  size_t bytes;
  // What another GPU accesses instead, if its accesses do not arrive; made at first use.
  std::vector<char> elsewhere = {};
};

std::mutex allocating;
std::map<void*, Allocation> blocks;  // of all GPUs, by GPU address
size_t taken[kMostGpus] = {};
std::atomic<int64_t> pinned{0};

void* on_gpu(void* block, int gpu) {
  return reinterpret_cast<void*>(uintptr_t(block) | uintptr_t(gpu + 1) << kShift);
}

size_t available(int gpu) {
  const size_t others = machine().full.contains(gpu) ? kMemory - kMemory / 8 : 0;
  return kMemory - std::min(kMemory, others + taken[gpu]);
}

void* allocate(size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }

void* lost(const void* address) {
  const std::lock_guard lock(allocating);
  auto block = blocks.upper_bound(const_cast<void*>(address));
  if (block == blocks.begin()) throw std::logic_error("a kernel got an address in no block");
  --block;
  block->second.elsewhere.resize(block->second.bytes);
  return block->second.elsewhere.data() +
         (static_cast<const char*>(address) - static_cast<const char*>(block->first));
}

// Of 8 MiB and more only the ends are filled: that is the workspace of products, of which they use
// little, and filling it takes longer than most kernels of a test.
void fill(void* to, int value, size_t bytes) {
  const size_t end = bytes < size_t(8) << 20 ? bytes : size_t(256) << 10;
  std::memset(to, value, end);
  std::memset(static_cast<char*>(to) + bytes - end, value, end);
}

bool fits(cudaMemcpyKind kind, const void* to, const void* from) {
  const bool to_gpu = gpu_of_address(to) >= 0, from_gpu = gpu_of_address(from) >= 0;
  return kind == cudaMemcpyDefault || (to_gpu == (kind != cudaMemcpyDeviceToHost) &&
                                       from_gpu == (kind != cudaMemcpyHostToDevice));
}

// Copies in the stream of `gpu`, which accesses memory of another GPU directly.
void enqueue_copy(void* to, const void* from, size_t bytes, int gpu, cudaStream_t stream) {
  const auto there = [gpu](const void* address) {
    const int other = gpu_of_address(address);
    return other >= 0 && loses(gpu, other) && enabled(gpu, other) ? lost(address)
                                                                  : on_host(address);
  };
  enqueue(stream, [=, to = there(to), from = there(from)] {
    if (bytes > 0) std::memmove(to, from, bytes);
  });
}

}  // namespace

int64_t pinned_bytes() { return pinned; }

int gpu_of_address(const void* address) { return int(uintptr_t(address) >> kShift) - 1; }

void* on_host(const void* address) {
  return reinterpret_cast<void*>(uintptr_t(address) & ((uintptr_t(1) << kShift) - 1));
}

void* address_for_kernels(const void* address) {
  const int gpu = gpu_of_address(address), here = current_gpu();
  if (gpu < 0 || gpu == here) return on_host(address);
  if (!enabled(here, gpu))
    throw std::logic_error("a kernel got an address of another GPU, which its GPU cannot access");
  return loses(here, gpu) ? lost(address) : on_host(address);
}

}  // namespace zl::cuda_on_cpu

using namespace zl::cuda_on_cpu;

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t status = open_context(current_gpu()); status != cudaSuccess)
    return result(status);
  const std::lock_guard lock(allocating);
  *total = kMemory;
  *free = available(current_gpu());
  return result(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const int gpu = gpu_of_address(address);
  *attributes = {gpu < 0 ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, gpu < 0 ? 0 : gpu};
  return result(cudaSuccess);
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  const int gpu = current_gpu();
  const std::lock_guard call(driver());
  if (const cudaError_t status = result(open_context(gpu)); status != cudaSuccess) return status;
  const std::lock_guard lock(allocating);
  void* const block = bytes > available(gpu) ? nullptr : allocate(bytes);
  if (!block) return result(cudaErrorMemoryAllocation);
  *to = on_gpu(block, gpu);
  blocks[*to] = {bytes};
  taken[gpu] += bytes;
  return cudaSuccess;
}

// Waits for the GPU's work, then frees.
cudaError_t cudaFree(void* memory) {
  if (!memory) return result(cudaSuccess);
  const std::lock_guard call(driver());
  finish_gpu(gpu_of_address(memory));
  const std::lock_guard lock(allocating);
  const auto block = blocks.find(memory);
  if (block == blocks.end()) return result(cudaErrorInvalidValue);
  taken[gpu_of_address(memory)] -= block->second.bytes;
  // Code that still reads it gets NaN.
  fill(on_host(memory), 0xff, block->second.bytes);
  blocks.erase(block);
  std::free(on_host(memory));
  return result(cudaSuccess);
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) {
  const std::lock_guard call(driver());
  if (const cudaError_t status = result(open_context(current_gpu())); status != cudaSuccess)
    return status;
  pinned += int64_t(bytes);
  *block = allocate(bytes);
  return result(*block ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* block) {
  if (!block) return result(cudaSuccess);
  std::free(block);
  return result(cudaSuccess);
}

// An address of a GPU whose memory the stream's GPU cannot access is refused. With unified
// addressing CUDA takes it, but no other library relies on that.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const int gpu = gpu_of(stream);
  if (!fits(kind, to, from)) return result(cudaErrorInvalidValue);
  for (const void* address : {static_cast<const void*>(to), from})
    if (gpu_of_address(address) >= 0 && !enabled(gpu, gpu_of_address(address)))
      return result(cudaErrorInvalidValue);
  enqueue_copy(to, from, bytes, gpu, stream);
  return result(cudaSuccess);
}
// cuda_runtime_api.h: cudaMemcpyPeerAsync. Guide, "Peer-to-Peer Memory Copy": if peer access is
// enabled, the copy "no longer needs to be staged through the host".
cudaError_t cudaMemcpyPeerAsync(void* to, int to_gpu, const void* from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
  const int gpu = gpu_of(stream);
  if (gpu_of_address(to) != to_gpu || gpu_of_address(from) != from_gpu ||
      (gpu != to_gpu && gpu != from_gpu))
    return result(cudaErrorInvalidValue);
  const int other = gpu == to_gpu ? from_gpu : to_gpu;
  if (!enabled(gpu, other)) count_staged_copy();
  enqueue_copy(to, from, bytes, gpu, stream);
  return result(cudaSuccess);
}
// On the default stream, which our streams do not wait for (cudaStreamNonBlocking).
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  for (const void* address : {static_cast<const void*>(to), from})
    if (gpu_of_address(address) >= 0 && gpu_of_address(address) != current_gpu())
      return result(cudaErrorInvalidValue);
  if (!fits(kind, to, from)) return result(cudaErrorInvalidValue);
  std::memmove(on_host(to), on_host(from), bytes);
  return result(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (gpu_of_address(to) != gpu_of(stream)) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] { fill(on_host(to), value, bytes); });
  return result(cudaSuccess);
}
