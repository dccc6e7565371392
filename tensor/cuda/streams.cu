// The two lanes of a rank are streams, and points in them are events.
#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// Owned by all who may still have to follow it, also after its rank has ended.
class CudaEvent final : public StreamEvent {
 public:
  CudaEvent(CUstream_st* stream, unsigned flags) {
    require_cuda(cudaEventCreateWithFlags(&event_, flags), "no event");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    require_cuda(status, "an event cannot be recorded");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::shared_ptr<const StreamEvent> CudaBackend::record_event(Stream lane) {
  return std::make_shared<CudaEvent>(stream(lane), cudaEventDisableTiming);
}

void CudaBackend::wait_event(Stream lane, const StreamEvent* point) {
  if (!point) return;
  require_cuda(cudaStreamWaitEvent(stream(lane), static_cast<const CudaEvent*>(point)->event(), 0),
               "a stream cannot wait");
}

bool CudaBackend::event_done(const StreamEvent* point) {
  if (!point) return true;
  const cudaError_t status = cudaEventQuery(static_cast<const CudaEvent*>(point)->event());
  if (status == cudaErrorNotReady) return false;
  require_cuda(status, "the GPU's work failed");
  return true;
}

void CudaBackend::synchronize() {
  for (CUstream_st* stream : streams_)
    require_cuda(cudaStreamSynchronize(stream), "the GPU's work failed");
}

double CudaBackend::seconds(const std::function<void()>& work) {
  const CudaEvent begin(stream(), cudaEventDefault);
  work();
  const CudaEvent end(stream(), cudaEventDefault);
  require_cuda(cudaEventSynchronize(end.event()), "the GPU's work failed");
  float milliseconds = 0;
  require_cuda(cudaEventElapsedTime(&milliseconds, begin.event(), end.event()), "no time");
  return double(milliseconds) / 1e3;
}

// Also between GPUs that cannot reach each other: the driver then takes the way through the host.
void CudaBackend::move_bytes(const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return;
  require_cuda(
      cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, stream(Stream::communication)),
      "a move between ranks failed");
}

}  // namespace zl::ZEROLAB_CUDA
