// An emulator of the part of CUDA that tensor/cuda uses, on the CPU. It is as unfavourable as CUDA
// may be:
// - The blocks of a kernel run one after the other. The threads of a block take turns: each runs
// until
//   it waits for others.
// - The work of a stream is executed as late as possible: when some code waits for it. Code that
// does
//   not wait sees old values.
// - There are two GPUs without peer access. The host faults if it uses an address in GPU memory,
// and a
//   kernel that gets an address of the other GPU is refused.
//
// So tests need no GPU to check kernels, their indices, barriers and shuffles, and the order
// between streams. The emulator does not find every race between the threads of a kernel (threads
// run upwards in one block and downwards in the next) and no misaligned memory, and it says nothing
// about speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static thread_local  // one block at a time on each thread

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0,
                          cudaEventDisableTiming = 2, cudaHostAllocPortable = 1;
struct cudaPointerAttributes {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
};
struct cudaFuncAttributes {};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

const char* cudaGetErrorString(cudaError_t status);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other);
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13010, cudaSuccess; }
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*)()) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);

cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* block);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace zl::cuda_on_cpu {

// The indices of the thread that runs now.
extern constinit thread_local dim3 thread_index, block_index, block_size, grid_size;
// Runs the other threads of the block until all have reached this call.
void wait_for_block();
// Returns the `mine` of thread `lane ^ offset` of the warp at the same call.
uint64_t exchange_in_warp(uint64_t mine, int offset);
// Runs body() for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& body);

// Adds work to the stream.
void enqueue(cudaStream_t stream, std::function<void()> work);
// The same for work that may wait for another thread: it is called again until it returns true.
void enqueue_until(cudaStream_t stream, std::function<bool()> work);
// The host address of an address of any GPU; other addresses do not change.
void* on_host(const void* address);
// The host address of an address of the current GPU; other addresses do not change. Throws
// std::logic_error for an address of another GPU.
void* address_for_kernels(const void* address);

}  // namespace zl::cuda_on_cpu

#define threadIdx (::zl::cuda_on_cpu::thread_index)
#define blockIdx (::zl::cuda_on_cpu::block_index)
#define blockDim (::zl::cuda_on_cpu::block_size)
#define gridDim (::zl::cuda_on_cpu::grid_size)

inline void __syncthreads() { zl::cuda_on_cpu::wait_for_block(); }
inline void __syncwarp() { zl::cuda_on_cpu::exchange_in_warp(0, 0); }

template <class F>
F __shfl_xor_sync(unsigned, F value, int offset) {
  static_assert(sizeof(F) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = zl::cuda_on_cpu::exchange_in_warp(bits, offset);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// In tensor/cuda/launch.h this is kernel<<<blocks, threads, 0, stream>>>(arguments).
#define ZL_LAUNCH(kernel, blocks, threads, stream)                                        \
  [&](auto... arguments_of_kernel) {                                                      \
    ::zl::cuda_on_cpu::enqueue(stream, [kernel = kernel, n = unsigned(blocks),            \
                                        of = unsigned(threads), arguments_of_kernel...] { \
      ::zl::cuda_on_cpu::run(n, of, [&] { kernel(arguments_of_kernel...); });             \
    });                                                                                   \
  }
