// The two streams of a rank, and events on them.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// Shared by all that may wait for it, also after its rank has ended.
class CudaEvent final : public StreamEvent {
 public:
  CudaEvent(CUstream_st* stream, unsigned flags) {
    require_cuda(cudaEventCreateWithFlags(&event_, flags), "cannot create an event");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    require_cuda(status, "cannot record an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  bool done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // some versions of CUDA remember it, and the next launch would report it
      return false;
    }
    require_cuda(status, "the GPU's work failed");
    return true;
  }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::shared_ptr<const StreamEvent> CudaBackend::record_event(Stream s) {
  return std::make_shared<CudaEvent>(stream(s), cudaEventDisableTiming);
}

void CudaBackend::wait_event(Stream s, const StreamEvent* event) {
  if (!event) return;
  require_cuda(cudaStreamWaitEvent(stream(s), static_cast<const CudaEvent*>(event)->event(), 0),
               "a stream cannot wait for an event");
}

void CudaBackend::select_for_this_thread() { select_gpu(device_); }

void CudaBackend::wait_on_host(const StreamEvent* event) {
  if (event_done(event)) return;
  ++host_waits_;
  require_cuda(cudaEventSynchronize(static_cast<const CudaEvent*>(event)->event()),
               "the GPU's work failed");
}

void CudaBackend::synchronize() {
  ++host_waits_;
  for (CUstream_st* stream : streams_)
    require_cuda(cudaStreamSynchronize(stream), "the GPU's work failed");
}

std::function<double()> CudaBackend::timing(Stream s, const std::function<void()>& work) {
  const auto begin = std::make_shared<CudaEvent>(stream(s), cudaEventDefault);
  work();
  return [begin, end = std::make_shared<CudaEvent>(stream(s), cudaEventDefault)] {
    require_cuda(cudaEventSynchronize(end->event()), "the GPU's work failed");
    float milliseconds = 0;
    require_cuda(cudaEventElapsedTime(&milliseconds, begin->event(), end->event()),
                 "cannot measure time");
    return double(milliseconds) / 1e3;
  };
}

// Between GPUs that cannot access each other the driver copies through the host. GPUs that can
// access each other copy directly once enable_access() has enabled it.
void CudaBackend::move_bytes(const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return;
  CUstream_st* const communication = stream(Stream::communication);
  const int from_gpu = gpu_of(from), to_gpu = gpu_of(to);
  if (from_gpu >= 0 && to_gpu >= 0 && from_gpu != to_gpu) {
    (void)enable_access(from_gpu == device_ ? to_gpu : from_gpu);
    require_cuda(cudaMemcpyPeerAsync(to, to_gpu, from, from_gpu, size_t(bytes), communication),
                 "a copy between GPUs failed");
  } else {
    require_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, communication),
                 "a copy between ranks failed");
  }
}

}  // namespace zl::ZEROLAB_CUDA
