// Streams and events: everything is put off until somebody waits for it.
#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

// What a stream was told and has not done; each says whether it is done now. Events hold on to it
// longer than the stream may live.
struct Queue {
  int gpu = 0;
  std::deque<std::function<bool()>> waiting;
  int64_t told = 0, done = 0;
  bool busy = false;
};
using Moment = std::chrono::steady_clock::time_point;

}  // namespace

struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null: never recorded
  int64_t place = 0;             // how much the stream had been told by then
  std::shared_ptr<Moment> reached = std::make_shared<Moment>();
};

namespace {

std::recursive_mutex mutex;  // one thread at a time does what streams were told
std::vector<std::weak_ptr<Queue>> queues;

// Whether all that stands before `place` is done. It is not if the queue came to something that
// waits for another thread.
bool run_until(Queue& queue, int64_t place) {
  while (queue.done < place) {
    if (queue.busy) return false;  // it waits, through others, for itself
    const std::function<bool()> next = std::move(queue.waiting.front());
    struct Step {  // what throws is over, too
      Queue& queue;
      bool done = true;
      ~Step() {
        queue.busy = false;
        if (!done) return;
        queue.waiting.pop_front();
        ++queue.done;
      }
    } step{queue};
    queue.busy = true;
    if (step.done = next(); !step.done) {
      queue.waiting.front() = next;
      return false;
    }
  }
  return true;
}

// As cudaStreamSynchronize and its kind do; lets other threads in while it waits for them.
void wait_until(Queue& queue, int64_t place) {
  for (;; std::this_thread::yield()) {
    const std::lock_guard lock(mutex);
    if (run_until(queue, place)) return;
  }
}

}  // namespace

namespace zl::cuda_on_cpu {

void tell_when(cudaStream_t stream, std::function<bool()> what) {
  const std::lock_guard lock(mutex);
  stream->queue->waiting.push_back(std::move(what));
  ++stream->queue->told;
}

void tell(cudaStream_t stream, std::function<void()> what) {
  tell_when(stream, [what = std::move(what)] { return what(), true; });
}

// What cudaFree waits for: everything that the streams of this GPU were told, as far as it waits
// for no other thread. Another GPU's may still use the memory.
void finish_gpu(int gpu) {
  const std::lock_guard lock(mutex);
  std::erase_if(queues, [](const auto& queue) { return queue.expired(); });
  for (const auto& weak : std::vector(queues))
    if (const auto queue = weak.lock(); queue && queue->gpu == gpu)
      (void)run_until(*queue, queue->told);
}

}  // namespace zl::cuda_on_cpu

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  cudaGetDevice(&(*stream)->queue->gpu);
  queues.push_back((*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_until(*stream->queue, stream->queue->told);  // only its own thread tells it more
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  if (event->queue)
    zl::cuda_on_cpu::tell_when(
        stream, [queue = event->queue, place = event->place] { return run_until(*queue, place); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  zl::cuda_on_cpu::tell(
      stream, [reached = event->reached] { *reached = std::chrono::steady_clock::now(); });
  event->queue = stream->queue;
  event->place = stream->queue->told;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->queue) wait_until(*event->queue, event->place);
  return cudaSuccess;
}

// Not ready, as long as anything stands before it; asking moves one thing on, so that asking again
// and again ends.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (!event->queue || event->queue->done >= event->place) return cudaSuccess;
  (void)run_until(*event->queue, event->queue->done + 1);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->reached - *begin->reached).count();
  return cudaSuccess;
}
