// Streams and events: work is executed when some code waits for it.
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/on_cpu/devices.h"

namespace zl::cuda_on_cpu {

using Work = std::function<bool()>;  // returns whether it is done

// The work of a stream that is not executed yet. Events may outlive the stream and keep its queue.
struct Queue {
  const int gpu = current_gpu();
  const std::thread::id owner = std::this_thread::get_id();
  std::deque<Work> waiting;
  int64_t enqueued = 0, done = 0;  // [n] so far
  bool busy = false;
  bool reserved = false;  // see reserve()
};
using Time = std::chrono::steady_clock::time_point;

}  // namespace zl::cuda_on_cpu

struct CUstream_st {
  std::shared_ptr<zl::cuda_on_cpu::Queue> queue = std::make_shared<zl::cuda_on_cpu::Queue>();
};
struct CUevent_st {
  const int gpu = zl::cuda_on_cpu::current_gpu();
  std::shared_ptr<zl::cuda_on_cpu::Queue> queue;  // null: never recorded
  int64_t position = 0;                           // how much work the stream had then
  std::shared_ptr<zl::cuda_on_cpu::Time> reached = std::make_shared<zl::cuda_on_cpu::Time>();
};

namespace {

using namespace zl::cuda_on_cpu;

// One thread at a time executes the work of streams. The driver's lock is taken before this one.
std::recursive_mutex mutex;
std::vector<std::weak_ptr<Queue>> queues;

// Executes the work before `position`. Returns false if some of it waits for another thread. Of
// dead GPUs nothing is executed.
bool run_until(Queue& queue, int64_t position) {
  while (queue.done < position) {
    if (queue.busy) return false;  // it waits for itself, through other streams
    const Work next = std::move(queue.waiting.front());
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
    if (step.done = dead() || next(); !step.done) {
      queue.waiting.front() = next;
      return false;
    }
  }
  return true;
}

// Calls f(queue) for those of the GPU, or of all with -1, until it returns false.
template <class F>
bool for_queues(int gpu, F f) {
  std::erase_if(queues, [](const auto& queue) { return queue.expired(); });
  for (const auto& weak : std::vector(queues))
    if (const auto queue = weak.lock(); queue && (gpu < 0 || queue->gpu == gpu))
      if (!f(*queue)) return false;
  return true;
}

// Executes the work of all GPUs that does not wait for another thread.
void run_all() {
  for_queues(-1, [](Queue& queue) { return (void)run_until(queue, queue.enqueued), true; });
}

void push(Queue& queue, Work work) {
  if (queue.reserved) throw std::logic_error("a stream is used while NCCL has not taken its group");
  queue.waiting.push_back(std::move(work));
  ++queue.enqueued;
}

void push_with_driver(cudaStream_t stream, Work work) {
  const std::lock_guard call(driver());
  const std::lock_guard lock(mutex);
  push(*stream->queue, std::move(work));
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

std::mutex& driver() {
  static std::mutex lock;
  return lock;
}

int gpu_of(cudaStream_t stream) { return stream->queue->gpu; }

void enqueue_until(cudaStream_t stream, std::function<bool()> work) {
  push_with_driver(stream, std::move(work));
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  push_with_driver(stream, [work = std::move(work)] { return work(), true; });
}

// NCCL's guide, "Thread Safety" and ncclGroupEnd of communicators that do not block: until
// ncclCommGetAsyncError gives ncclSuccess, the stream of a group belongs to NCCL.
void reserve(cudaStream_t stream, bool reserved) {
  const std::lock_guard lock(mutex);
  stream->queue->reserved = reserved;
}

void finish_gpu(int gpu) {
  const std::lock_guard lock(mutex);
  for_queues(gpu, [](Queue& queue) { return (void)run_until(queue, queue.enqueued), true; });
}

}  // namespace zl::cuda_on_cpu

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t status = result(open_context(current_gpu())); status != cudaSuccess)
    return status;
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  queues.push_back((*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_until(*stream->queue, stream->queue->enqueued);  // only the rank's own thread adds work
  return result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t status = cudaStreamSynchronize(stream);
  delete stream;
  return status;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->queue)
    push_with_driver(stream, [queue = event->queue, position = event->position] {
      return run_until(*queue, position);
    });
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t status = result(open_context(current_gpu())); status != cudaSuccess)
    return status;
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, result(cudaSuccess); }

// cuda_runtime_api.h: "event and stream must be on the same CUDA context".
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->gpu != gpu_of(stream)) return result(cudaErrorInvalidResourceHandle);
  const std::lock_guard call(driver());
  const std::lock_guard lock(mutex);
  push(*stream->queue,
       [reached = event->reached] { return *reached = std::chrono::steady_clock::now(), true; });
  event->queue = stream->queue;
  event->position = stream->queue->enqueued;
  return result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->queue) wait_until(*event->queue, event->position);
  return result(cudaSuccess);
}

// Not ready while earlier work is not done. Each query by the stream's own thread executes one
// piece of work, so that repeated queries end. A query by another thread, such as a watchdog, only
// looks: so what is executed when does not depend on that thread's speed.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (dead() || !event->queue || event->queue->done >= event->position) return result(cudaSuccess);
  if (event->queue->owner == std::this_thread::get_id())
    (void)run_until(*event->queue, event->queue->done + 1);
  return result(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->reached - *begin->reached).count();
  return cudaSuccess;
}
