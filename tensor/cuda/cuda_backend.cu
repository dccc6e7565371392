#include <bit>
#include <cstdlib>
#include <cstring>

#include "tensor/cuda/cuda_backend.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/pinned_blocks.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// ZEROLAB_POOL_SEGMENT replaces the size of segments. With 1 each block has a segment for itself,
// so that compute-sanitizer sees an access beyond it.
GpuOptions with_segment(GpuOptions options) {
  const char* text = std::getenv("ZEROLAB_POOL_SEGMENT");
  if (!text) return options;
  char* end = nullptr;
  options.segment = std::strtoll(text, &end, 10);
  require(*text && !*end && options.segment > 0, "ZEROLAB_POOL_SEGMENT is '", text,
          "', but must be a number of bytes, such as 1");
  return options;
}

}  // namespace

CudaBackend::CudaBackend(int device, GpuOptions options)
    : device_(device),
      options_(with_segment(options)),
      pinned_(std::make_unique<PinnedBlocks>(*this)) {
  int count = 0;
  require_cuda(cudaGetDeviceCount(&count), "cannot count the GPUs");
  if (device < 0 || device >= count)
    throw std::runtime_error(str("GPU ", device, " is out of range: this machine has ", count));
  select_gpu(device);
  try {
    for (CUstream_st*& stream : streams_)
      require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                   "cannot create a stream");
    blas_ = make_blas(stream());
    load_ordered_sum();
    if (options_.preloads) load_attention_kernels(*options_.preloads, options_.tf32);
  } catch (...) {
    release_all();
    throw;
  }
}

CudaBackend::~CudaBackend() { release_all(); }

void CudaBackend::release_all() noexcept {
  for (CUstream_st* stream : streams_)
    if (stream) cudaStreamSynchronize(stream);
  pinned_.reset();
  cudaFree(staging_);
  blas_.reset();
  for (CUstream_st* stream : streams_)
    if (stream) cudaStreamDestroy(stream);
}

void* CudaBackend::allocate(int64_t bytes) {
  void* segment = nullptr;
  if (cudaMalloc(&segment, size_t(bytes)) == cudaSuccess) return segment;
  cudaGetLastError();  // clears the error; Memory reports what did not fit
  return nullptr;
}

// Other ranks may still read this rank's memory, but its compute stream waits until they have
// (Work::wait).
void CudaBackend::release(void* segment, int64_t) noexcept {
  for (CUstream_st* stream : streams_) cudaStreamSynchronize(stream);
  cudaFree(segment);
}

void CudaBackend::poison(void* block, int64_t bytes) noexcept {
  cudaMemsetAsync(block, 0xff, size_t(bytes), stream());  // all bits set are NaN in every type
}

int64_t CudaBackend::workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) const {
  return cuda_workspace(kernel, dims, dtype);
}

int64_t CudaBackend::padded_columns(int64_t n) const { return cuda_padded_columns(n); }

PinnedBlocks::~PinnedBlocks() {
  for (void* slab : slabs_) cudaFreeHost(slab);
}

PinnedBlocks::Block& PinnedBlocks::take(int64_t bytes) {
  for (Block& block : blocks_) {
    if (block.taken || block.bytes < bytes || !backend_.event_done(block.used.get())) continue;
    block.taken = true;
    return block;
  }
  const int64_t size = int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(bytes, 256)))),
                count = size <= kSmall ? kBlocksOfSlab : 1;
  void* slab = nullptr;
  require_cuda(cudaHostAlloc(&slab, size_t(size * count), cudaHostAllocPortable),
               "cannot allocate pinned memory for copies");
  slabs_.push_back(slab);
  for (int64_t i = 0; i < count; ++i)
    blocks_.push_back({.data = static_cast<char*>(slab) + i * size, .bytes = size});
  blocks_.back().taken = true;
  return blocks_.back();
}

// A small upload is copied to pinned memory first, so that the host does not wait for the GPU.
// After a large one the host waits, because the caller may change its memory.
void CudaBackend::upload(const void* host, const Tensor& to) {
  if (to.bytes() == 0) return;
  const bool small = to.bytes() <= PinnedBlocks::kSmall;
  PinnedBlocks::Block* const block = small ? &pinned_->take(to.bytes()) : nullptr;
  if (block) std::memcpy(block->data, host, size_t(to.bytes()));
  require_cuda(cudaMemcpyAsync(to.address(), block ? block->data : host, size_t(to.bytes()),
                               cudaMemcpyHostToDevice, stream()),
               "an upload failed");
  if (block) {
    block->used = record_event(Stream::compute);
    return PinnedBlocks::give_back(*block);
  }
  ++host_waits_;
  require_cuda(cudaStreamSynchronize(stream()), "an upload failed");
}

void CudaBackend::download(const Tensor& from, void* host) {
  if (from.bytes() == 0) return;
  ++host_waits_;
  require_cuda(
      cudaMemcpyAsync(host, from.address(), size_t(from.bytes()), cudaMemcpyDeviceToHost, stream()),
      "a download failed");
  require_cuda(cudaStreamSynchronize(stream()), "a download failed");
}

std::function<const void*()> CudaBackend::start_download(const Tensor& from) {
  const std::shared_ptr<PinnedBlocks::Block> block(
      &pinned_->take(from.bytes()), [](PinnedBlocks::Block* b) { PinnedBlocks::give_back(*b); });
  require_cuda(cudaMemcpyAsync(block->data, from.address(), size_t(from.bytes()),
                               cudaMemcpyDeviceToHost, stream()),
               "a download failed");
  block->used = record_event(Stream::compute);
  return [this, block] {
    wait_on_host(block->used.get());
    return block->data;
  };
}

}  // namespace zl::ZEROLAB_CUDA
