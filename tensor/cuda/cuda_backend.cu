#include <algorithm>

#include "tensor/cuda/launch.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/norm.h"

namespace zl::ZEROLAB_CUDA {

CudaBackend::CudaBackend(int device) : device_(device) {
  int count = 0;
  require_cuda(cudaGetDeviceCount(&count), "GPUs cannot be counted");
  if (device < 0 || device >= count) throw std::runtime_error(str("there is no GPU ", device, ": this machine has ", count));
  require_cuda(cudaSetDevice(device), "the GPU cannot be used");
  require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "no stream");
  blas_ = make_blas(stream_);
}

CudaBackend::~CudaBackend() {
  drop_blas(blas_);
  cudaStreamDestroy(stream_);
}

void* CudaBackend::allocate(int64_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, size_t(bytes)) == cudaSuccess) return block;
  cudaGetLastError();  // Memory reports what does not fit
  return nullptr;
}

void CudaBackend::release(void* block, int64_t) noexcept { cudaFree(block); }

int64_t CudaBackend::workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const {
  const int64_t statistics = dtype == Dtype::f64 ? 8 : 4;
  switch (kernel) {
    case KernelId::matmul: return kMatmulWorkspace;
    case KernelId::attention: return 0;
    case KernelId::attention_backward: return dims[0] * dims[1] * dims[2] * statistics;  // per query: dy · y
    case KernelId::layer_norm_backward: return 2 * layer_norm_parts(dims[0]) * dims[1] * statistics;  // sums of dgain and dbias
    case KernelId::cross_entropy: return dims[0] * statistics;  // the loss of each row
    case KernelId::sum_of_squares: return sums_of_squares(dims[0]) * int64_t(sizeof(double));
    case KernelId::sum_rows:
    case KernelId::embedding_backward:
    case KernelId::add_positions_backward: return 0;
  }
  return 0;
}

void CudaBackend::upload(const void* host, const Tensor& to) {
  require_cuda(cudaMemcpyAsync(to.address(), host, size_t(to.bytes()), cudaMemcpyHostToDevice, stream_), "an upload failed");
  require_cuda(cudaStreamSynchronize(stream_), "an upload failed");  // the caller may change its memory now
}

void CudaBackend::download(const Tensor& from, void* host) {
  require_cuda(cudaMemcpyAsync(host, from.address(), size_t(from.bytes()), cudaMemcpyDeviceToHost, stream_), "a download failed");
  require_cuda(cudaStreamSynchronize(stream_), "a download failed");
}

}  // namespace zl::ZEROLAB_CUDA
