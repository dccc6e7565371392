// The memory of two GPUs: host memory under addresses that the host cannot use.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace zl::cuda_on_cpu {
void finish_gpu(int gpu);
}

namespace {

constexpr int kGpus = 2;
// Addresses of GPU 0 have bit 60, those of GPU 1 bit 61. No address of the host has either.
constexpr int kShift = 60;
constexpr size_t kMemory = size_t(1) << 30;  // [B] of each

thread_local int current = 0;

std::mutex mutex;
std::map<void*, size_t> blocks;  // of both GPUs, by GPU address
size_t taken[kGpus] = {};

// -1: memory of the host.
int gpu_of(const void* address) { return int(uintptr_t(address) >> kShift) - 1; }
void* on_gpu(void* block, int gpu) {
  return reinterpret_cast<void*>(uintptr_t(block) | uintptr_t(gpu + 1) << kShift);
}

bool fits(cudaMemcpyKind kind, const void* to, const void* from) {
  const bool to_gpu = gpu_of(to) >= 0, from_gpu = gpu_of(from) >= 0;
  return kind == cudaMemcpyDefault || (to_gpu == (kind != cudaMemcpyDeviceToHost) &&
                                       from_gpu == (kind != cudaMemcpyHostToDevice));
}

}  // namespace

namespace zl::cuda_on_cpu {

void* on_host(const void* address) {
  return reinterpret_cast<void*>(uintptr_t(address) & ((uintptr_t(1) << kShift) - 1));
}

void* address_for_kernels(const void* address) {
  const int gpu = gpu_of(address);
  if (gpu >= 0 && gpu != current)
    throw std::logic_error("a kernel got an address of another GPU, which its GPU cannot access");
  return on_host(address);
}

}  // namespace zl::cuda_on_cpu

const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaSuccess ? "no error" : "an error";
}
cudaError_t cudaGetDeviceCount(int* count) { return *count = kGpus, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return current = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"a GPU on the CPU", kMemory, 9, 0, 1};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device) {
  std::snprintf(address, size_t(size), "0000:0%d:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const std::lock_guard lock(mutex);
  *total = kMemory;
  *available = kMemory - taken[current];
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const int gpu = gpu_of(address);
  *attributes = {gpu < 0 ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, gpu < 0 ? 0 : gpu};
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (bytes > kMemory - taken[current]) return cudaErrorMemoryAllocation;
  void* block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!block) return cudaErrorMemoryAllocation;
  *to = on_gpu(block, current);
  blocks[*to] = bytes;
  taken[current] += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  zl::cuda_on_cpu::finish_gpu(gpu_of(memory));
  const std::lock_guard lock(mutex);
  const auto block = blocks.find(memory);
  if (block == blocks.end()) return cudaErrorInvalidValue;
  taken[gpu_of(memory)] -= block->second;
  // Code that still reads it gets NaN.
  std::memset(zl::cuda_on_cpu::on_host(memory), 0xff, block->second);
  blocks.erase(block);
  std::free(zl::cuda_on_cpu::on_host(memory));
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) {
  *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *block ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* block) { return std::free(block), cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (!fits(kind, to, from)) return cudaErrorInvalidValue;
  zl::cuda_on_cpu::enqueue(stream, [=] {
    if (bytes > 0)
      std::memmove(zl::cuda_on_cpu::on_host(to), zl::cuda_on_cpu::on_host(from), bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (gpu_of(to) < 0) return cudaErrorInvalidValue;
  zl::cuda_on_cpu::enqueue(stream,
                           [=] { std::memset(zl::cuda_on_cpu::on_host(to), value, bytes); });
  return cudaSuccess;
}
