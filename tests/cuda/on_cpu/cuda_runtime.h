// As much of CUDA as the kernels of tensor/cuda use, on the CPU: the blocks of a kernel run one after the other on the
// calling thread, the threads of a block in turns, each until the next point at which it waits for others.
//
// So kernels, their indices, their barriers and their shuffles are tested where there is no GPU. What this cannot show:
// races between threads, memory that is not aligned for its instructions, speed.
#pragma once

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
#define __shared__ static thread_local   // one block at a time on each thread

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
inline constexpr unsigned cudaStreamNonBlocking = 1;

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}

namespace zl::cuda_on_cpu {

// Of the thread that runs at the moment.
extern constinit thread_local dim3 thread_index, block_index, block_size, grid_size;
// Lets the other threads of the block run until all have come this far.
void wait_for_block();
// Gives `mine` and gets what the thread `lane ^ offset` of the warp gives at the same call.
uint64_t exchange_in_warp(uint64_t mine, int offset);
// Runs body() for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& body);

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

// What tensor/cuda/launch.h writes as kernel<<<blocks, threads, 0, stream>>>(arguments).
#define ZL_LAUNCH(kernel, blocks, threads, stream)                                                            \
  [&](auto... arguments_of_kernel) {                                                                          \
    (void)(stream);                                                                                           \
    ::zl::cuda_on_cpu::run(unsigned(blocks), unsigned(threads), [&] { kernel(arguments_of_kernel...); });     \
  }
