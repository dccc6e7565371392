// Access to the memory of other GPUs.
//
// A GPU may say that it can access another one's memory, and then read garbage from it: this
// happens on machines whose IOMMU or PCIe switches redirect the accesses (NCCL's guide, "PCI Access
// Control Services (ACS)"). So a pattern must arrive there before kernels may rely on it.
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

constexpr int64_t kWords = int64_t(1) << 18;  // [n] of the pattern, which has 1 MiB
constexpr size_t kBytes = size_t(kWords) * sizeof(uint32_t);

__host__ __device__ inline uint32_t pattern(int64_t i) { return uint32_t(i) * 2654435761u + 1; }

__global__ void read_and_write_kernel(uint32_t* theirs, uint32_t* copy) {
  const int64_t i = first_element();
  if (i >= kWords) return;
  copy[i] = theirs[i];
  theirs[i] = ~pattern(i);
}

// Memory for the pattern on a GPU, which is this thread's GPU afterwards.
struct Words {
  explicit Words(int gpu) : gpu(gpu) {
    select_gpu(gpu);
    void* block = nullptr;
    require_cuda(cudaMalloc(&block, kBytes), "cannot allocate memory to test the access to a GPU");
    data = static_cast<uint32_t*>(block);
  }
  Words(const Words&) = delete;
  ~Words() { cudaFree(data); }
  std::vector<uint32_t> contents() const {
    std::vector<uint32_t> all(static_cast<size_t>(kWords));
    select_gpu(gpu);
    require_cuda(cudaMemcpy(all.data(), data, kBytes, cudaMemcpyDeviceToHost),
                 "cannot test the access to a GPU");
    return all;
  }
  const int gpu;
  uint32_t* data = nullptr;
};

// Whether kernels of `device` read the pattern that is in the memory of `other`, and write another
// one there. `stream` is of `device`, which must be, and stays, this thread's GPU.
bool pattern_arrives(int device, int other, CUstream_st* stream) {
  struct Restore {
    int device;
    ~Restore() { cudaSetDevice(device); }
  } restore{device};
  std::vector<uint32_t> written(static_cast<size_t>(kWords)), expected = written;
  for (int64_t i = 0; i < kWords; ++i) {
    written[size_t(i)] = pattern(i);
    expected[size_t(i)] = ~pattern(i);
  }
  const Words theirs(other);
  require_cuda(cudaMemcpy(theirs.data, written.data(), kBytes, cudaMemcpyHostToDevice),
               "cannot test the access to a GPU");
  // cudaMemcpy from pageable memory may return before the data is on the GPU; reading it back waits
  // for it.
  if (theirs.contents() != written) return false;
  const Words copy(device);
  launch_on(stream, read_and_write_kernel, blocks_for(kWords), kThreads,
            device_address(theirs.data), device_address(copy.data));
  require_cuda(cudaStreamSynchronize(stream), "cannot test the access to a GPU");
  return copy.contents() == written && theirs.contents() == expected;
}

std::string pci(int gpu) {
  char address[32] = "";
  return cudaDeviceGetPCIBusId(address, sizeof address, gpu) == cudaSuccess ? address : "";
}

// Enables the access; false if the hardware cannot. This creates a context on the other GPU.
bool enable(int device, int other) {
  int can = 0;
  cudaError_t status = cudaDeviceCanAccessPeer(&can, device, other);
  if (status == cudaSuccess && can) status = cudaDeviceEnablePeerAccess(other, 0);
  cudaGetLastError();  // clears the error, which the next launch would report
  return can && (status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled);
}

// Each pair is tested once in a process.
bool enable_and_test(int device, int other, CUstream_st* stream) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, bool> arrives;
  const std::lock_guard lock(mutex);
  const auto known = arrives.find({device, other});
  if (known != arrives.end() && !known->second) return false;
  if (!enable(device, other)) return false;
  if (known != arrives.end()) return true;
  if ((arrives[{device, other}] = pattern_arrives(device, other, stream))) return true;
  cudaDeviceDisablePeerAccess(other);  // copies would use the same path
  std::fprintf(stderr,
               "warning: GPU %d (%s) claims access to the memory of GPU %d (%s), but data does not "
               "arrive there. Copies between them go through the host, which is slower. How to fix "
               "it: turn off ACS of the PCIe switches, or the IOMMU, in the machine's firmware "
               "(NCCL's guide: PCI Access Control Services)\n",
               device, pci(device).c_str(), other, pci(other).c_str());
  return false;
}

}  // namespace

int gpu_of(const void* address) {
  cudaPointerAttributes where{};
  require_cuda(cudaPointerGetAttributes(&where, address), "the address of a buffer is unknown");
  return where.type == cudaMemoryTypeDevice ? where.device : -1;
}

bool CudaBackend::enable_access(int gpu) {
  if (gpu == device_) return true;
  const auto known = peers_.find(gpu);
  return known != peers_.end()
             ? known->second
             : (peers_[gpu] = enable_and_test(device_, gpu, stream(Stream::communication)));
}

}  // namespace zl::ZEROLAB_CUDA
