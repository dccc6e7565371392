#include "tensor/moves.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/tensor/kept_events.h"

namespace {

using namespace zl;

// One rank's two memories, on the CPU or on meta.
struct Pools {
  explicit Pools(bool meta)
      : device({meta ? DeviceKind::meta : DeviceKind::cpu},
               meta ? meta_backend(DeviceKind::cpu) : cpu_backend(), events),
        host({meta ? DeviceKind::meta : DeviceKind::cpu}, device.backend(), events,
             {.pool = Pool::host}) {}

  Tensor on(Memory& memory, MemoryUse use, int64_t n, Dtype dtype = Dtype::f32) {
    return Tensor::zeros(memory, use, {n}, dtype);
  }
  std::vector<std::string> moves() {
    std::vector<std::string> all;
    for (const Event& e : *kept)
      if (e.kind == EventKind::move) all.push_back(str(e.what, " ", e.bytes));
    return all;
  }

  EventStream events{3};
  std::shared_ptr<const std::vector<Event>> kept = test::keep_events(events);
  Memory device, host;
};

using Total = MoveLog::Total;

TEST_CASE("a copy between the host's and the device's memory counts as a move, with its direction",
          "[tensor][moves]") {
  Pools pools(GENERATE(false, true));
  const Tensor shard = pools.on(pools.host, MemoryUse::parameter, 7, Dtype::bf16);
  const Tensor full = pools.on(pools.device, MemoryUse::parameter, 7, Dtype::bf16);
  kernel::copy(shard, full);
  kernel::copy(shard, full);
  kernel::copy(full, shard.slice(0, {7}));
  MoveLog& moves = pools.events.moves();
  CHECK(moves.of(Move::host_to_device) == Total{2, 28});
  CHECK(moves.of(Move::device_to_host) == Total{1, 14});
  CHECK(moves.of(Move::disk_read) == Total{});
  CHECK(pools.moves() ==
        std::vector<std::string>{"host to device 14", "host to device 14", "device to host 14"});
  moves = {};
  CHECK(moves == MoveLog{});
}

TEST_CASE("a gradient that is added in another memory moves once, with the bytes of its type",
          "[tensor][moves]") {
  Pools pools(GENERATE(false, true));
  // What is reduced may be a communication buffer, and goes through workspace of the host.
  const MemoryUse use = GENERATE(MemoryUse::gradient, MemoryUse::communication);
  kernel::accumulate(pools.on(pools.device, use, 5, Dtype::bf16),
                     pools.on(pools.host, MemoryUse::gradient, 5));
  CHECK(pools.events.moves().of(Move::device_to_host) == Total{1, 10});
  CHECK(pools.events.moves().of(Move::host_to_device) == Total{});
}

TEST_CASE("what stays in a pool, or is not model state, is no move", "[tensor][moves]") {
  Pools pools(GENERATE(false, true));
  const Tensor a = pools.on(pools.device, MemoryUse::gradient, 6),
               b = pools.on(pools.device, MemoryUse::gradient, 6),
               numbers = pools.on(pools.host, MemoryUse::workspace, 6),
               gathered = pools.on(pools.device, MemoryUse::communication, 6);
  kernel::copy(a, b);
  kernel::accumulate(a, b);
  kernel::copy(numbers, gathered);
  kernel::upload<float>(std::vector<float>(6), a);
  if (a.backend().holds_data()) (void)kernel::download<float>(a);
  kernel::copy(a.slice(0, {0}), numbers.slice(0, {0}));  // nothing
  CHECK(pools.events.moves() == MoveLog{});
  CHECK(pools.moves().empty());
  kernel::copy(numbers, a);  // workspace of the optimizer's memory, to what it updates
  CHECK(pools.events.moves().of(Move::host_to_device) == Total{1, 24});
}

}  // namespace
