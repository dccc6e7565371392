// What the parts of the emulator know of its GPUs.
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "tests/cuda/on_cpu/controls.h"

namespace zl::cuda_on_cpu {

inline constexpr int kMostGpus = 6;

const Machine& machine();
int current_gpu();  // of this thread

// cuda_runtime_api.h: cudaGetLastError "returns the last error that has been produced by any of the
// runtime calls in the same host thread". All calls return what this returns, so that it remembers
// it: also cudaErrorNotReady, which some versions of CUDA remember.
cudaError_t result(cudaError_t status);

// After a kernel has accessed an illegal address: "this leaves the process in an inconsistent state
// and any further CUDA work will return the same error" (driver_types.h, cudaErrorIllegalAddress).
bool dead();
void may_die_at_kernel();  // one is about to run; it may be the one after which the GPUs are dead

// Makes the GPU's context. cudaSuccess, or why it cannot.
cudaError_t open_context(int gpu);

// GPU number of an address, -1 for memory of the host.
int gpu_of_address(const void* address);
bool enabled(int gpu, int other);  // cudaDeviceEnablePeerAccess was called, or it is the same GPU
bool loses(int gpu, int other);    // accesses between them do not arrive
void count_staged_copy();

// Held by calls that change what the driver knows, such as launches, copies and allocations, but
// not by those that only wait or ask.
std::mutex& driver();
// Executes all work of the GPU, or of all with -1, that waits for no other thread.
void finish_gpu(int gpu);
int gpu_of(cudaStream_t stream);

}  // namespace zl::cuda_on_cpu
