#include <array>
#include <catch2/catch_test_macros.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/kernels.h"
#include "tests/tensor/kept_events.h"

namespace {

using namespace zl;

struct Meta {
  EventStream events;
  Memory memory{Device{DeviceKind::meta}, meta_backend(), events};
  Tensor empty(Shape shape, Dtype dtype = Dtype::f32) {
    return Tensor::empty(memory, MemoryUse::activation, std::move(shape), dtype);
  }
};

TEST_CASE("tensors on meta use no memory, but the ledger counts them", "[tensor]") {
  Meta meta;
  const Tensor t = meta.empty({int64_t(1) << 40, 1 << 10}, Dtype::bf16);
  CHECK(meta.memory.ledger().live_total() == int64_t(1) << 51);
  CHECK_THROWS_AS(t.data<bf16>(), std::invalid_argument);
  CHECK_FALSE(meta.memory.backend().holds_data());
  CHECK_FALSE(meta.memory.backend().host_addressable());
}

TEST_CASE("blocks on meta have addresses, so that a release is paired with its allocation",
          "[tensor]") {
  Meta meta;
  Memory host(Device{DeviceKind::meta}, meta_backend(), meta.events, {.pool = Pool::host});
  std::vector<Event> seen;
  meta.events.listen([&](const Event& e) { seen.push_back(e); });
  {
    const Tensor a = meta.empty({100}), b = meta.empty({100}), none = meta.empty({0}),
                 c = Tensor::empty(host, MemoryUse::activation, {100});
    const auto at = [](const Tensor& t) {
      return int64_t(reinterpret_cast<uintptr_t>(t.address()));
    };
    CHECK((at(none) == 0 && at(a) % 64 == 0));
    CHECK((at(b) >= at(a) + 400 && at(c) != at(a) && at(c) != at(b)));
    CHECK(at(a.slice(5, {7})) == at(a) + 20);
    CHECK((seen[0].count == at(a) && seen[1].count == at(b) && seen[3].count == at(c)));
  }
  // In reverse order, as locals are destroyed.
  REQUIRE(seen.size() == 8);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(seen[7 - i].kind == EventKind::release);
    CHECK(seen[7 - i].count == seen[i].count);
  }
  // Two blocks of one size one after the other are told apart.
  const int64_t first = seen[0].count;
  CHECK(int64_t(reinterpret_cast<uintptr_t>(meta.empty({100}).address())) != first);
}

TEST_CASE("the limit holds on meta, so that a plan can run out of memory", "[tensor]") {
  EventStream events;
  Memory memory(Device{DeviceKind::meta}, meta_backend(), events, {.limit = 100});
  CHECK_THROWS_AS(Tensor::empty(memory, MemoryUse::parameter, {26}), OutOfMemory);
  CHECK_NOTHROW(Tensor::empty(memory, MemoryUse::parameter, {25}));
}

TEST_CASE("values on meta cannot be downloaded, and scalars read as the step expects", "[tensor]") {
  Meta meta;
  const Tensor scalar = meta.empty({1}), values = meta.empty({3});
  CHECK_THROWS_AS(kernel::download<float>(values), std::logic_error);
  CHECK(kernel::read(scalar) == 0);
  CHECK_NOTHROW(kernel::upload<float>(std::vector<float>{1, 2, 3}, values));
}

// The workspace peak and the kernel events of the same calls on a device.
struct Trace {
  int64_t workspace;
  std::vector<std::pair<std::string, int64_t>> operations;
  bool operator==(const Trace&) const = default;
};

Trace run(Memory& memory, int64_t C) {
  const auto events = test::keep_events(memory.events());
  const auto empty = [&](Shape shape, Dtype dtype = Dtype::f32) {
    return Tensor::zeros(memory, MemoryUse::activation, std::move(shape), dtype);
  };
  const Tensor x = empty({2, 9, C}), y = empty({2, 9, C}), w = empty({C, C}), bias = empty({C}),
               ids = empty({2, 9}, Dtype::i32);
  kernel::matmul({x}, {w}, {}, y);
  kernel::sum_rows(y, bias);
  kernel::gelu(x, y);
  kernel::embedding(ids, w, y);
  kernel::add_positions_backward(y, empty({9, C}));
  kernel::cross_entropy(y, ids, empty({1}));
  kernel::update_parameters({bias, bias, empty({C}), empty({C}), {}});
  Trace trace{memory.ledger().peak(MemoryUse::workspace), {}};
  for (const Event& e : *events)
    if (e.kind == EventKind::kernel) trace.operations.emplace_back(e.what, e.count);
  return trace;
}

TEST_CASE("a dry run has the workspace and the operations of the device that meta stands for",
          "[tensor]") {
  Meta meta;
  EventStream events;
  Memory memory(Device{}, cpu_backend(), events);
  const Trace on_meta = run(meta.memory, 48), on_cpu = run(memory, 48);
  CHECK(on_meta == on_cpu);
  CHECK(on_cpu.workspace >= 48 * 4);
  CHECK(meta.memory.ledger().peak_total() == memory.ledger().peak_total());
  Meta other;
  CHECK(run(other.memory, 32) != on_cpu);
}

TEST_CASE("a dry run of a GPU asks for its workspace, on a machine without one", "[tensor]") {
  const std::array<int64_t, 3> dims{100, 64, 32};
  const auto asks = [&](DeviceKind kind) {
    return meta_backend(kind).workspace(KernelId::matmul, dims, Dtype::f32);
  };
  CHECK(asks(DeviceKind::cuda) == int64_t(32) << 20);
  CHECK(asks(DeviceKind::cpu) == cpu_backend().workspace(KernelId::matmul, dims, Dtype::f32));
  CHECK(std::string(meta_backend(DeviceKind::cuda).name()) == "meta");
}

}  // namespace
