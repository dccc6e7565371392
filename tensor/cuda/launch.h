// Launching kernels, and what every kernel file needs. Only .cu files of this folder include it.
//
// The same files also compile as plain C++ against the emulator in tests/cuda/on_cpu, which runs
// the kernels on the CPU: the tests use it where there is no GPU. This header contains the
// differences between the two, except for names and for cuBLAS (matmul.cu).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tensor/cuda/cuda_backend.h"

#ifndef ZEROLAB_CUDA_ON_CPU
#define ZL_LAUNCH(kernel, blocks, threads, stream) \
  kernel<<<unsigned(blocks), unsigned(threads), 0, stream>>>
#endif

namespace zl::ZEROLAB_CUDA {

// Throws std::runtime_error with CUDA's message if `status` is an error. Clears the thread's last
// error, which the next launch would report.
inline void require_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": CUDA says: " + cudaGetErrorString(status) +
                           (status == cudaErrorIllegalAddress
                                ? "; a kernel has accessed memory outside its tensors, and this "
                                  "process can no longer use its GPUs. compute-sanitizer in front "
                                  "of the command names the kernel"
                                : ""));
}

constexpr int kThreads = 256;  // of a block, unless a kernel says otherwise
constexpr int kWarp = 32;

inline int64_t blocks_for(int64_t n, int64_t per_block = kThreads) {
  return (n + per_block - 1) / per_block;
}

// An address in GPU memory as kernels use it. In the emulator, the host has other addresses.
template <class T>
T* device_address(T* address) {
#ifdef ZEROLAB_CUDA_ON_CPU
  return static_cast<T*>(address_for_kernels(address));
#else
  return address;
#endif
}

// Launches kernel(arguments…) on `blocks` blocks; 0 blocks launch nothing.
template <class... Parameters, class... Arguments>
void launch_on(CUstream_st* stream, void (*kernel)(Parameters...), int64_t blocks, int threads,
               Arguments... arguments) {
  if (blocks == 0) return;
  ZL_LAUNCH(kernel, blocks, threads, stream)(Parameters(arguments)...);
  require_cuda(cudaGetLastError(), "a kernel launch failed");
}
template <class... Parameters, class... Arguments>
void launch(CudaBackend& backend, void (*kernel)(Parameters...), int64_t blocks, int threads,
            Arguments... arguments) {
  launch_on(backend.stream(), kernel, blocks, threads, arguments...);
}

// The virtual architecture that a kernel was compiled for (80: compute_80). To ask loads the kernel
// onto the current GPU.
template <class... Parameters>
int compiled_for(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  require_cuda(cudaFuncGetAttributes(&attributes, kernel), "a kernel cannot be loaded");
  return attributes.ptxVersion;
}

// Loads a kernel onto the current GPU. Without this its first launch does, which may have to wait
// until other kernels have ended, or compile PTX.
template <class... Parameters>
void load_kernel(void (*kernel)(Parameters...)) {
  (void)compiled_for(kernel);
}

// The elements of a tensor on the GPU.
template <class T>
T* elements(const Tensor& t) {
  return static_cast<T*>(device_address(t.address()));
}

// The first element of this thread and the distance to its next, in a loop over any n on any grid.
__device__ inline int64_t first_element() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t element_stride() { return int64_t(gridDim.x) * blockDim.x; }
// This thread's number in its warp.
__device__ inline int lane() { return int(threadIdx.x) % kWarp; }

// Consecutive elements that a thread loads and stores in accesses of 16 bytes; or one element.
template <class T, int kCount>
struct alignas(16) Pack {
  T at[kCount];
};

// How many elements of these types form packs whose sizes are multiples of 16 bytes.
template <class... Types>
constexpr int pack_of() {
  return 16 / int(std::min({sizeof(Types)...}));
}
// Whether packs may begin at these addresses: a GPU refuses accesses of 16 bytes elsewhere.
template <class... Types>
__host__ __device__ bool packs_fit(const Types*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) | ...) % 16) == 0;
}

#ifndef ZEROLAB_CUDA_ON_CPU
__device__ inline uint4 load_16_bytes(const void* from) { return *static_cast<const uint4*>(from); }
__device__ inline void store_16_bytes(uint4 bits, void* to) { *static_cast<uint4*>(to) = bits; }
#endif

template <int kCount, class T>
__device__ Pack<T, kCount> load_pack(const T* from) {
  Pack<T, kCount> pack;
  if constexpr (kCount == 1) {
    pack.at[0] = *from;
  } else {
#pragma unroll
    for (size_t b = 0; b < sizeof pack; b += 16) {
      const uint4 bits = load_16_bytes(reinterpret_cast<const char*>(from) + b);
      memcpy(reinterpret_cast<char*>(&pack) + b, &bits, 16);
    }
  }
  return pack;
}
template <int kCount, class T>
__device__ void store_pack(const Pack<T, kCount>& pack, T* to) {
  if constexpr (kCount == 1) {
    *to = pack.at[0];
  } else {
#pragma unroll
    for (size_t b = 0; b < sizeof pack; b += 16) {
      uint4 bits;
      memcpy(&bits, reinterpret_cast<const char*>(&pack) + b, 16);
      store_16_bytes(bits, reinterpret_cast<char*>(to) + b);
    }
  }
}

// The sum over a warp, or over each of its groups of kLanes neighbours, in one fixed order. All
// threads get the result. All 32 threads must call it.
template <int kLanes = kWarp, class F>
__device__ F warp_sum(F value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
template <int kLanes = kWarp, class F>
__device__ F warp_max(F value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    const F other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
}
// The same over a block of kThreads. All threads of the block must call it.
template <class F>
__device__ F block_sum(F value) {
  __shared__ F of_warp[kThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();  // all threads have read the previous result
  if (lane() == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  F sum = 0;
  for (int w = 0; w < int(blockDim.x) / kWarp; ++w) sum += of_warp[w];
  return sum;
}
template <class F>
__device__ F block_max(F value) {
  __shared__ F of_warp[kThreads / kWarp];
  value = warp_max(value);
  __syncthreads();
  if (lane() == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  F largest = of_warp[0];
  for (int w = 1; w < int(blockDim.x) / kWarp; ++w)
    largest = of_warp[w] > largest ? of_warp[w] : largest;
  return largest;
}

}  // namespace zl::ZEROLAB_CUDA
