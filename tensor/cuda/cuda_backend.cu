#include "tensor/cuda/cuda_backend.h"
#include "tensor/cuda/device_pool.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
CudaBackend::CudaBackend(int device, GpuOptions options)
    : device_(device), options_(options), pool_(std::make_unique<DevicePool>(options.segment)) {
  int count = 0;
  require_cuda(cudaGetDeviceCount(&count), "GPUs cannot be counted");
  if (device < 0 || device >= count)
    throw std::runtime_error(str("there is no GPU ", device, ": this machine has ", count));
  require_cuda(cudaSetDevice(device), "the GPU cannot be used");
  try {
    for (CUstream_st*& stream : streams_)
      require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
    blas_ = make_blas(stream());
  } catch (...) {
    give_back();
    throw;
  }
}

// Other ranks may still read this rank's memory, but its compute lane follows the moment at which
// they have (Work::wait).
CudaBackend::~CudaBackend() { give_back(); }

void CudaBackend::give_back() noexcept {
  for (CUstream_st* stream : streams_)
    if (stream) cudaStreamSynchronize(stream);
  pool_.reset();
  cudaFreeHost(staging_);
  if (blas_) drop_blas(blas_);
  for (CUstream_st* stream : streams_)
    if (stream) cudaStreamDestroy(stream);
}

void* CudaBackend::allocate(int64_t bytes) { return pool_->allocate(bytes); }
void CudaBackend::release(void* block, int64_t) noexcept { pool_->release(block); }
int64_t CudaBackend::driver_calls() const { return pool_->driver_calls(); }

void CudaBackend::poison(void* block, int64_t bytes) noexcept {
  cudaMemsetAsync(block, 0xff, size_t(bytes), stream());  // all bits set are NaN in every type
}

int64_t CudaBackend::workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const {
  return cuda_workspace(kernel, dims, dtype);
}

void CudaBackend::upload(const void* host, const Tensor& to) {
  if (to.bytes() == 0) return;
  require_cuda(
      cudaMemcpyAsync(to.address(), host, size_t(to.bytes()), cudaMemcpyHostToDevice, stream()),
      "an upload failed");
  require_cuda(cudaStreamSynchronize(stream()),
               "an upload failed");  // the caller may change its memory now
}

void CudaBackend::download(const Tensor& from, void* host) {
  if (from.bytes() == 0) return;
  require_cuda(
      cudaMemcpyAsync(host, from.address(), size_t(from.bytes()), cudaMemcpyDeviceToHost, stream()),
      "a download failed");
  require_cuda(cudaStreamSynchronize(stream()), "a download failed");
}

}  // namespace zl::ZEROLAB_CUDA
