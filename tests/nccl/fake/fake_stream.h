// The CPU with a communication stream that lags: what is enqueued is executed when its thread asks
// whether it is done, one thing at each question, or waits. Kernels work at once on the host, so
// where a GPU's compute stream would wait, the host does. Belongs to one thread; others may only
// look at its events. While NCCL has not taken a group the stream is NCCL's, and refuses all else.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"

namespace zl::test {

struct FakeStream {
  const std::thread::id owner = std::this_thread::get_id();
  std::deque<std::function<bool()>> waiting;  // each: whether it is done
  int64_t enqueued = 0;
  std::atomic<int64_t> done{0};
  std::atomic<bool> reserved{false};  // for a group that NCCL has not taken
  void require_free() const {
    require(!reserved, "a stream is used while NCCL has not taken its group");
  }
  void enqueue(std::function<bool()> what) {
    require_free();
    waiting.push_back(std::move(what));
    ++enqueued;
  }
  void move_on() {
    if (waiting.empty() || !waiting.front()()) return;
    waiting.pop_front();
    ++done;
  }
};

// What the fake does with the streams that calls come in.
struct FakeStreams {
  void (*reserve)(void* stream, bool reserved) = nullptr;
  // Executes `work` there until it returns true. Null: no call comes in a stream.
  void (*enqueue_until)(void* stream, std::function<bool()> work) = nullptr;
  void* (*on_host)(const void* address) = nullptr;  // null: as it is
  // Set: calls may come in any stream, and their data has moved when they return, after this has
  // executed all that the streams were given before.
  void (*finish)() = nullptr;
};

inline constexpr FakeStreams kLaggingStreams{
    .reserve = [](void* stream,
                  bool reserved) { static_cast<FakeStream*>(stream)->reserved = reserved; },
    .enqueue_until =
        [](void* stream, std::function<bool()> work) {
          static_cast<FakeStream*>(stream)->enqueue(std::move(work));
        }};

class LaggingCpu final : public CpuBackend {
 public:
  ~LaggingCpu() override { synchronize(); }
  const char* name() const override { return "lagging cpu"; }

  std::shared_ptr<const StreamEvent> record_event(Stream stream) override {
    if (stream == Stream::compute) return nullptr;  // done when the call returns
    stream_->require_free();
    return std::make_shared<Point>(stream_);
  }
  void wait_event(Stream stream, const StreamEvent* point) override {
    if (stream == Stream::communication) stream_->require_free();
    while (stream == Stream::compute && !event_done(point)) std::this_thread::yield();
  }
  void synchronize() override {
    for (; !stream_->waiting.empty(); std::this_thread::yield()) stream_->move_on();
  }
  void* native_stream(Stream stream) override {
    return stream == Stream::communication ? stream_.get() : nullptr;
  }

  void ordered_sum(const OrderedSum& sum) override {
    stream_->enqueue([this, sum, buffers = std::vector(sum.buffers.begin(), sum.buffers.end()),
                      results = std::vector(sum.results.begin(), sum.results.end())] {
      OrderedSum later = sum;
      later.buffers = buffers;
      later.results = results;
      CpuBackend::ordered_sum(later);
      return true;
    });
  }
  void move_bytes(const void* from, void* to, int64_t bytes) override {
    stream_->enqueue(
        [this, from, to, bytes] { return CpuBackend::move_bytes(from, to, bytes), true; });
  }

 private:
  struct Point final : StreamEvent {
    explicit Point(std::shared_ptr<FakeStream> of)
        : stream(std::move(of)), place(stream->enqueued) {}
    bool done() const override {
      if (std::this_thread::get_id() == stream->owner && stream->done < place) stream->move_on();
      return stream->done >= place;
    }
    const std::shared_ptr<FakeStream> stream;
    const int64_t place;
  };
  const std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
};

}  // namespace zl::test
