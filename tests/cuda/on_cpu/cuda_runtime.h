// An emulator of the part of CUDA that tensor/cuda uses, on the CPU. It is as unfavourable as CUDA
// may be:
// - The blocks of a kernel run one after the other. The threads of a block take turns: each runs
//   until it waits for others.
// - The work of a stream is executed as late as possible: when some code waits for it. Code that
//   does not wait sees old values.
// - There are two GPUs without peer access, or more (controls.h). The host faults if it uses an
//   address in GPU memory, and a kernel or a copy that gets an address of a GPU without peer access
//   is refused.
// - The first launch of a kernel loads it, which waits for the GPU.
// - Each thread keeps its last error. What goes wrong on other machines can be chosen (controls.h).
//
// So tests need no GPU to check kernels, their indices, barriers and shuffles, and the order
// between streams. The emulator does not find every race between the threads of a kernel (a warp
// runs as far as it can before the next one, upwards in one block and downwards in the next), and
// it says nothing about speed.
#pragma once

#include <bit>
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
#define __shared__ static  // one block at a time in a process

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct uint4 {
  unsigned x, y, z, w;
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
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorInvalidPtx = 218,
  cudaErrorJitCompilerNotFound = 221,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorJitCompilationDisabled = 223,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorCompatNotSupportedOnDevice = 804
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
struct cudaFuncAttributes {
  int ptxVersion = 0;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int other);
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version);
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
cudaError_t cudaMemcpyPeerAsync(void* to, int to_gpu, const void* from, int from_gpu, size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace zl::cuda_on_cpu {

// The indices of the thread that runs now.
extern dim3 thread_index, block_index, block_size, grid_size;
// Runs the other threads of the block until all have reached this call.
void wait_for_block();
// Returns the `mine` of thread `lane ^ offset` of the warp at the same call.
uint64_t exchange_in_warp(uint64_t mine, int offset);
// Bit l of the result is the `mine` of thread l of the warp at the same call.
unsigned ballot_of_warp(bool mine);
// Counts a kernel of this thread (tests/cuda/on_cpu/launches.h).
void count_launch(unsigned blocks);
// A vector load or store of the thread that runs now. Throws std::logic_error unless the address is
// a multiple of 16 (driver_types.h: cudaErrorMisalignedAddress).
uint4 load_16_bytes(const void* from);
void store_16_bytes(uint4 bits, void* to);
// Runs body() for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& body);

// Loads the kernel onto the current GPU.
cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel);
// Loads the kernel. Returns whether it can be launched; if not, that is the thread's last error.
bool begin_launch(const void* kernel, cudaStream_t stream);
// Adds work to the stream.
void enqueue(cudaStream_t stream, std::function<void()> work);
// The same for work that may wait for another thread: it is called again until it returns true.
void enqueue_until(cudaStream_t stream, std::function<bool()> work);
void reserve(cudaStream_t stream, bool reserved);  // it then refuses all work
// The host address of an address of any GPU; other addresses do not change.
void* on_host(const void* address);
// The host address that a kernel of the current GPU accesses under this address. Throws
// std::logic_error if it cannot.
void* address_for_kernels(const void* address);

}  // namespace zl::cuda_on_cpu

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return zl::cuda_on_cpu::get_attributes(attributes, reinterpret_cast<const void*>(kernel));
}

#define threadIdx (::zl::cuda_on_cpu::thread_index)
#define blockIdx (::zl::cuda_on_cpu::block_index)
#define blockDim (::zl::cuda_on_cpu::block_size)
#define gridDim (::zl::cuda_on_cpu::grid_size)

inline void __syncthreads() { zl::cuda_on_cpu::wait_for_block(); }
inline void __syncwarp() { zl::cuda_on_cpu::exchange_in_warp(0, 0); }

// Threads with `mine` all write 1, so their order does not matter.
inline int __syncthreads_or(int mine) {
  __shared__ int any;
  zl::cuda_on_cpu::wait_for_block();
  any = 0;
  zl::cuda_on_cpu::wait_for_block();
  if (mine) any = 1;
  zl::cuda_on_cpu::wait_for_block();
  return any;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline unsigned __ballot_sync(unsigned, bool mine) { return zl::cuda_on_cpu::ballot_of_warp(mine); }

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
#define ZL_LAUNCH(kernel, blocks, threads, stream)                                               \
  [&](auto... arguments_of_kernel) {                                                             \
    ::zl::cuda_on_cpu::count_launch(unsigned(blocks));                                           \
    if (!::zl::cuda_on_cpu::begin_launch(reinterpret_cast<const void*>(kernel), stream)) return; \
    ::zl::cuda_on_cpu::enqueue(stream, [kernel = kernel, n = unsigned(blocks),                   \
                                        of = unsigned(threads), arguments_of_kernel...] {        \
      ::zl::cuda_on_cpu::run(n, of, [&] { kernel(arguments_of_kernel...); });                    \
    });                                                                                          \
  }
