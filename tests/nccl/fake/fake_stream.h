// The CPU with a communication stream that lags: what is enqueued waits until a rank asks
// whether it is done, and each question moves it one thing on. Belongs to one thread.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/cpu/cpu_backend.h"

namespace zl::test {

struct FakeStream {
  std::deque<std::function<bool()>> waiting;  // each: whether it is done
  int64_t enqueued = 0, done = 0;
  void enqueue(std::function<bool()> what) {
    waiting.push_back(std::move(what));
    ++enqueued;
  }
  void move_on() {
    if (waiting.empty() || !waiting.front()()) return;
    waiting.pop_front();
    ++done;
  }
};

class LaggingCpu final : public CpuBackend {
 public:
  ~LaggingCpu() override { synchronize(); }
  const char* name() const override { return "lagging cpu"; }

  std::shared_ptr<const StreamEvent> record_event(Stream stream) override {
    if (stream == Stream::compute) return nullptr;  // done when the call returns
    return std::make_shared<Point>(stream_.enqueued);
  }
  bool event_done(const StreamEvent* point) override {
    stream_.move_on();
    return !point || stream_.done >= static_cast<const Point*>(point)->place;
  }
  // The compute stream works at once, so it would have to wait; the host must not do so
  // without a deadline.
  void wait_event(Stream stream, const StreamEvent* point) override {
    if (stream == Stream::compute && point &&
        stream_.done < static_cast<const Point*>(point)->place)
      hurried_ = true;
  }
  void synchronize() override {
    for (int tries = 0; !stream_.waiting.empty() && tries < 1000; ++tries) stream_.move_on();
  }
  void* native_stream(Stream stream) override {
    return stream == Stream::communication ? &stream_ : nullptr;
  }

  void ordered_sum(const OrderedSum& sum) override {
    stream_.enqueue([this, sum, buffers = std::vector(sum.buffers.begin(), sum.buffers.end()),
                     results = std::vector(sum.results.begin(), sum.results.end())] {
      OrderedSum later = sum;
      later.buffers = buffers;
      later.results = results;
      CpuBackend::ordered_sum(later);
      return true;
    });
  }
  void move_bytes(const void* from, void* to, int64_t bytes) override {
    stream_.enqueue(
        [this, from, to, bytes] { return CpuBackend::move_bytes(from, to, bytes), true; });
  }

  bool hurried() const {
    return hurried_;
  }  // whether the compute stream went on before an event it waits for

 private:
  struct Point final : StreamEvent {
    explicit Point(int64_t place) : place(place) {}
    int64_t place;
  };
  FakeStream stream_;
  bool hurried_ = false;
};

}  // namespace zl::test
