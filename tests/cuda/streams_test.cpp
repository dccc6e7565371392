// The order between the streams of backends: events and waiting.
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/cuda/on_cpu/controls.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kElements = 1 << 16;

// Copies `from` to `to` in the communication stream, which waits for the compute stream or not.
void move(Backend& gpu, const Tensor& from, const Tensor& to, bool waits) {
  const auto ready = gpu.record_event(Stream::compute);
  if (waits) gpu.wait_event(Stream::communication, ready.get());
  gpu.move_bytes(from.address(), to.address(), from.bytes());
}

}  // namespace

TEST_CASE(
    "the communication stream sees the writes of the compute stream before an event that it waits "
    "for",
    "[cuda]") {
  Side side(test_gpu());
  Backend& gpu = test_gpu();
  const Tensor from = side.nan({kElements}, Dtype::f32), to = side.nan({kElements}, Dtype::f32);
  kernel::fill(3, from);
  move(gpu, from, to, true);
  const auto moved = gpu.record_event(Stream::communication);
  gpu.wait_event(Stream::compute, moved.get());
  kernel::accumulate(from, to);
  CHECK(values_of(to) == std::vector<double>(kElements, 6));
}

TEST_CASE("a stream that does not wait sees old values: the emulator executes work late",
          "[cuda]") {
  if (real_gpu()) SKIP("a real GPU may be quick enough to be right by chance");
  Side side(test_gpu());
  Backend& gpu = test_gpu();
  const Tensor from = side.of(std::vector<double>(64, 1), {64}, Dtype::f32),
               to = side.of(std::vector<double>(64, 1), {64}, Dtype::f32);
  kernel::fill(3, from);
  move(gpu, from, to, false);
  kernel::accumulate(from, to);  // adds before the copy
  CHECK(values_of(to) == std::vector<double>(64, 4));
  gpu.synchronize();
  CHECK(values_of(to) == std::vector<double>(64, 3));
}

TEST_CASE("event_done does not wait for the event", "[cuda]") {
  Side side(test_gpu());
  Backend& gpu = test_gpu();
  const Tensor t = side.nan({kElements}, Dtype::f32);
  gpu.synchronize();
  CHECK(gpu.event_done(nullptr));
  kernel::fill(3, t);
  const auto event = gpu.record_event(Stream::compute);
  const bool at_once = gpu.event_done(event.get());
  for (int64_t asked = 0; !gpu.event_done(event.get()) && asked < 100'000'000; ++asked) {
  }
  CHECK(gpu.event_done(event.get()));
  if (!real_gpu()) CHECK_FALSE(at_once);  // a real one may be quick enough
  CHECK(gpu.native_stream(Stream::compute) != gpu.native_stream(Stream::communication));
  CHECK(cpu_backend().native_stream(Stream::communication) == nullptr);
}

TEST_CASE("a stream may wait for an event after the backend that recorded it has been destroyed",
          "[cuda]") {
  require_gpu();
  std::shared_ptr<const StreamEvent> event;
  {
    const auto other = gpu_of_rank(0);
    event = other->record_event(Stream::communication);
  }
  test_gpu().wait_event(Stream::compute, event.get());
  test_gpu().wait_event(Stream::compute, nullptr);
  CHECK_NOTHROW(test_gpu().synchronize());
}

TEST_CASE("the host cannot read GPU memory, and the error says so", "[cuda]") {
  Side side(test_gpu());
  const Tensor t = side.nan({4}, Dtype::f32);
  CHECK_THROWS_AS(t.data<float>(), std::invalid_argument);
}

TEST_CASE("the seconds of a GPU's work are measured on the GPU, and more work takes longer",
          "[cuda]") {
  std::optional<cuda_on_cpu::EmulatedMachine> machine;
  if (!real_gpu()) machine.emplace(cuda_on_cpu::Machine{.load_ms = 100});
  Side side(test_gpu());
  const Tensor t = side.nan({kElements}, Dtype::f32);
  const auto filling = [&](int times) {
    return test_gpu().seconds([&] {
      for (int i = 0; i < times; ++i) kernel::fill(i, t);
    });
  };
  (void)filling(1);  // loads the kernel, which takes longer than to run it
  const double few = filling(1), many = filling(20);
  CHECK(few > 0);
  CHECK(many > few);
}

TEST_CASE("poisoned memory on the GPU is full of NaN, both new and released", "[cuda]") {
  EventStream events;
  Memory memory({DeviceKind::cuda}, test_gpu(), events, {.poison = true});
  for (int round = 0; round < 2; ++round) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, {1000}, Dtype::bf16);
    const std::vector<double> values = values_of(t);
    CHECK(std::ranges::all_of(values, [](double v) { return std::isnan(v); }));
    kernel::fill(1, t);
    CHECK(values_of(t) == std::vector<double>(1000, 1));
  }
}

TEST_CASE("a copy between the host and a GPU casts too", "[cuda]") {
  EventStream events;
  Side gpu(test_gpu());
  const auto pinned = pinned_memory();
  Memory host({DeviceKind::cpu}, *pinned, events, {.pool = Pool::host});
  const std::vector<double> values = {1.0, 0.1, -2.7, 65504, 1e-6};
  const Tensor there = gpu.of(values, {5}, Dtype::f32),
               here = Tensor::empty(host, MemoryUse::gradient, {5}, Dtype::bf16);
  kernel::copy(there, here);
  const Tensor back = gpu.nan({5}, Dtype::f32);
  kernel::copy(here, back);
  Side cpu(cpu_backend());
  const Tensor expected = cpu.nan({5}, Dtype::bf16);
  kernel::copy(cpu.of(values, {5}, Dtype::f32), expected);
  CHECK(values_of(here) == values_of(expected));
  CHECK(values_of(back) == values_of(expected));
  CHECK(values_of(back) != values);
}
