// Streams and events: work is executed when some code waits for it.
#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

// The work of a stream that is not executed yet; each function returns whether it is done. Events
// may outlive the stream and keep its queue.
struct Queue {
  int gpu = 0;
  const std::thread::id owner = std::this_thread::get_id();
  std::deque<std::function<bool()>> waiting;
  int64_t enqueued = 0, done = 0;  // [n] so far
  bool busy = false;
};
using Time = std::chrono::steady_clock::time_point;

}  // namespace

struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null: never recorded
  int64_t position = 0;          // how much work the stream had then
  std::shared_ptr<Time> reached = std::make_shared<Time>();
};

namespace {

std::recursive_mutex mutex;  // one thread at a time executes the work of streams
std::vector<std::weak_ptr<Queue>> queues;

// Executes the work before `position`. Returns false if some of it waits for another thread.
bool run_until(Queue& queue, int64_t position) {
  while (queue.done < position) {
    if (queue.busy) return false;  // it waits for itself, through other streams
    const std::function<bool()> next = std::move(queue.waiting.front());
    struct Step {  // work that throws is done, too
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

// Executes the work of all GPUs that does not wait for another thread.
void run_all() {
  for (const auto& weak : std::vector(queues))
    if (const auto queue = weak.lock()) (void)run_until(*queue, queue->enqueued);
}

// Waits as cudaStreamSynchronize does. Other threads can execute work meanwhile. If this work waits
// for that of other GPUs, whose threads may not wait for anything, they go on too.
void wait_until(Queue& queue, int64_t position) {
  for (;; std::this_thread::yield()) {
    const std::lock_guard lock(mutex);
    if (run_until(queue, position)) return;
    run_all();
  }
}

}  // namespace

namespace zl::cuda_on_cpu {

void enqueue_until(cudaStream_t stream, std::function<bool()> work) {
  const std::lock_guard lock(mutex);
  stream->queue->waiting.push_back(std::move(work));
  ++stream->queue->enqueued;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  enqueue_until(stream, [work = std::move(work)] { return work(), true; });
}

// Executes the work that cudaFree waits for: all work of this GPU's streams that does not wait for
// another thread. Another GPU's work may still use the memory.
void finish_gpu(int gpu) {
  const std::lock_guard lock(mutex);
  std::erase_if(queues, [](const auto& queue) { return queue.expired(); });
  for (const auto& weak : std::vector(queues))
    if (const auto queue = weak.lock(); queue && queue->gpu == gpu)
      (void)run_until(*queue, queue->enqueued);
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
  wait_until(*stream->queue, stream->queue->enqueued);  // only the rank's own thread adds work
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
    zl::cuda_on_cpu::enqueue_until(stream, [queue = event->queue, position = event->position] {
      return run_until(*queue, position);
    });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  zl::cuda_on_cpu::enqueue(
      stream, [reached = event->reached] { *reached = std::chrono::steady_clock::now(); });
  event->queue = stream->queue;
  event->position = stream->queue->enqueued;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->queue) wait_until(*event->queue, event->position);
  return cudaSuccess;
}

// Not ready while earlier work is not done. Each query by the stream's own thread executes one
// piece of work, so that repeated queries end. A query by another thread, such as a watchdog, only
// looks: so what is executed when does not depend on that thread's speed.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (!event->queue || event->queue->done >= event->position) return cudaSuccess;
  if (event->queue->owner == std::this_thread::get_id())
    (void)run_until(*event->queue, event->queue->done + 1);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->reached - *begin->reached).count();
  return cudaSuccess;
}
