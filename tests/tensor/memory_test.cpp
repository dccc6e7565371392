#include "tensor/memory.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>

#include "tensor/cpu/cpu_backend.h"
#include "tests/tensor/kept_events.h"

namespace {

using namespace zl;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPoolsBlocks = false;  // so that AddressSanitizer sees uses after free
#else
constexpr bool kPoolsBlocks = true;
#endif

struct MemoryFixture {
  EventStream events{3};
  Memory memory;
  explicit MemoryFixture(MemoryOptions options = {})
      : memory(Device{}, cpu_backend(), events, options) {}
};

TEST_CASE("the ledger counts live and peak bytes of each use", "[tensor]") {
  MemoryLedger ledger;
  ledger.add(MemoryUse::parameter, 100);
  ledger.add(MemoryUse::gradient, 50);
  ledger.add(MemoryUse::parameter, -60);
  ledger.add(MemoryUse::activation, 10);
  CHECK((ledger.live(MemoryUse::parameter) == 40 && ledger.peak(MemoryUse::parameter) == 100));
  CHECK((ledger.live(MemoryUse::gradient) == 50 && ledger.peak(MemoryUse::gradient) == 50));
  CHECK((ledger.live_total() == 100 && ledger.peak(MemoryUse::workspace) == 0));
}

TEST_CASE("the peak of the total is of one instant, not the sum of the peaks", "[tensor]") {
  MemoryLedger ledger;
  ledger.add(MemoryUse::gradient, 70);
  ledger.add(MemoryUse::gradient, -70);
  ledger.add(MemoryUse::activation, 40);
  CHECK(ledger.peak_total() == 70);
  CHECK(ledger.peak_total() !=
        ledger.peak(MemoryUse::gradient) + ledger.peak(MemoryUse::activation));
  ledger.reset_peak();
  CHECK((ledger.peak_total() == 40 && ledger.peak(MemoryUse::gradient) == 0 &&
         ledger.peak(MemoryUse::activation) == 40));
  ledger.add(MemoryUse::workspace, 1);
  CHECK(ledger.peak_total() == 41);
}

TEST_CASE("holders names what holds memory, largest first", "[tensor]") {
  MemoryLedger ledger;
  CHECK(ledger.holders() == "nothing");
  ledger.add(MemoryUse::parameter, 640);
  ledger.add(MemoryUse::activation, 3 << 19);
  ledger.add(MemoryUse::workspace, 5);
  ledger.add(MemoryUse::workspace, -5);
  CHECK(ledger.holders() == "activation 1.50 MiB, parameter 640 B");
}

TEST_CASE("tensors enter and leave the ledger with their storages, to the byte", "[tensor]") {
  MemoryFixture f;
  Tensor a = Tensor::empty(f.memory, MemoryUse::gradient, {3, 5}, Dtype::bf16);
  {
    const Tensor b = Tensor::zeros(f.memory, MemoryUse::activation, {7}, Dtype::f64),
                 view = b.slice(2, {3}), copy = a;
    CHECK((f.memory.ledger().live(MemoryUse::gradient) == 30 &&
           f.memory.ledger().live(MemoryUse::activation) == 56));
  }
  CHECK((f.memory.ledger().live_total() == 30 && f.memory.ledger().peak_total() == 86));
  Tensor part = a.slice(1, {1});
  a = {};
  CHECK(f.memory.ledger().live_total() == 30);  // the slice still holds all of it
  part = {};
  CHECK((f.memory.ledger().live_total() == 0 && f.memory.allocations() == 2));
}

TEST_CASE("memory is aligned to 64 bytes at every size, and none is taken for 0 bytes",
          "[tensor]") {
  MemoryFixture f;
  for (int64_t bytes : {1, 2, 63, 64, 65, 4097}) {
    void* block = f.memory.allocate(MemoryUse::workspace, bytes);
    CHECK(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    f.memory.release(block, MemoryUse::workspace, bytes);
  }
  CHECK(f.memory.allocate(MemoryUse::workspace, 0) == nullptr);
  f.memory.release(nullptr, MemoryUse::workspace, 0);
}

TEST_CASE("an allocation up to the limit fits, one byte more does not and changes nothing",
          "[tensor]") {
  MemoryFixture f({.limit = 1000});
  const Tensor half = Tensor::empty(f.memory, MemoryUse::parameter, {125});
  {
    const Tensor rest = Tensor::empty(f.memory, MemoryUse::gradient, {125});
    CHECK(f.memory.ledger().live_total() == 1000);
    CHECK_THROWS_AS(f.memory.allocate(MemoryUse::workspace, 1), OutOfMemory);
    CHECK((f.memory.ledger().live_total() == 1000 && f.memory.ledger().peak_total() == 1000));
  }
  CHECK_THROWS_AS(f.memory.allocate(MemoryUse::workspace, 501), OutOfMemory);
  CHECK_THROWS_AS(f.memory.allocate(MemoryUse::workspace, INT64_MAX), OutOfMemory);
  CHECK_NOTHROW(Tensor::empty(f.memory, MemoryUse::workspace, {125}));
}

TEST_CASE("OutOfMemory names rank, phase, unit, use, sizes, holders and what to try", "[tensor]") {
  MemoryFixture f({.limit = 4096});
  f.events.set_phase("backward");
  f.events.set_unit("h.3");
  const Tensor held = Tensor::empty(f.memory, MemoryUse::parameter, {768});
  const std::string micro_batch = "Try a smaller micro-batch, activation checkpointing, ";
  CHECK_THROWS_WITH(Tensor::empty(f.memory, MemoryUse::activation, {512}),
                    Catch::Matchers::ContainsSubstring(micro_batch));
  {
    const Tensor x = Tensor::empty(f.memory, MemoryUse::activation, {1});
    CHECK_THROWS_WITH(Tensor::empty(f.memory, MemoryUse::gradient, {512}),
                      Catch::Matchers::ContainsSubstring(micro_batch));
  }
  try {
    Tensor::empty(f.memory, MemoryUse::gradient, {512});  // with model states alone
    FAIL("it fitted");
  } catch (const OutOfMemory& error) {
    CHECK((error.rank == 3 && error.phase == "backward" && error.unit == "h.3" &&
           error.asked == 2048));
    CHECK(std::string(error.what()) ==
          "rank 3 is out of device memory in backward, unit h.3: asked for 2.00 KiB (2048 bytes) "
          "of gradient, the limit is 4.00 KiB "
          "(4096 bytes), in use 3.00 KiB = parameter 3.00 KiB. Try a smaller model or a "
          "larger limit.");
  }
}

TEST_CASE("an allocation that the system cannot serve is OutOfMemory, not a crash", "[tensor]") {
  if (!kPoolsBlocks) SKIP("AddressSanitizer ends the program at such a request");
  MemoryFixture f;
  CHECK_THROWS_AS(f.memory.allocate(MemoryUse::activation, int64_t(1) << 60), OutOfMemory);
  CHECK(f.memory.ledger().live_total() == 0);
}

TEST_CASE("fail_at fails the k-th allocation from now, once", "[tensor]") {
  MemoryFixture f;
  f.memory.fail_at(3);
  int failed_at = 0;
  for (int i = 1; i <= 8; ++i) {
    try {
      Tensor::empty(f.memory, MemoryUse::activation, {4});
    } catch (const OutOfMemory& error) {
      CHECK(failed_at == 0);
      failed_at = i;
      CHECK(std::string(error.what()).find("fail_at") != std::string::npos);
    }
  }
  CHECK((failed_at == 3 && f.memory.allocations() == 8 && f.memory.ledger().live_total() == 0));
  f.memory.fail_at(1);
  f.memory.fail_at(0);
  CHECK_NOTHROW(Tensor::empty(f.memory, MemoryUse::activation, {4}));
}

TEST_CASE("with poison, unwritten memory is NaN in every float type", "[tensor]") {
  MemoryFixture f({.poison = true});
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  CAPTURE(name(dtype));
  for (int reuse = 0; reuse < 2; ++reuse) {
    const Tensor t = Tensor::empty(f.memory, MemoryUse::activation, {37}, dtype);
    for_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      CHECK(
          std::ranges::all_of(t.data<T>(), [](T value) { return std::isnan(Compute<T>(value)); }));
    });
    if (reuse == 0) cpu_backend().fill(1, t);
  }
}

TEST_CASE("with poison, released memory is NaN", "[tensor]") {
  if (!kPoolsBlocks) SKIP("AddressSanitizer watches released memory itself");
  MemoryFixture f({.poison = true});
  Tensor t = Tensor::zeros(f.memory, MemoryUse::activation, {8});
  const float* elements = t.data<float>().data();
  CHECK(elements[7] == 0);
  t = {};
  CHECK(std::isnan(elements[7]));  // the block is in the pool, so this address is still valid
}

TEST_CASE("released blocks are reused in parts, and the ledger does not count what is free",
          "[tensor]") {
  if (!kPoolsBlocks) SKIP("AddressSanitizer sees uses after free only if blocks are not pooled");
  MemoryFixture f;
  void* first = f.memory.allocate(MemoryUse::activation, 4096);
  f.memory.release(first, MemoryUse::activation, 4096);
  CHECK(f.memory.ledger().live_total() == 0);
  void* half = f.memory.allocate(MemoryUse::gradient, 2048);
  void* rest = f.memory.allocate(MemoryUse::gradient, 2000);
  CHECK((half == first && rest == static_cast<char*>(first) + 2048));
  CHECK((f.memory.ledger().live_total() == 4048 && f.memory.system_calls() == 1));
  f.memory.release(half, MemoryUse::gradient, 2048);
  f.memory.release(rest, MemoryUse::gradient, 2000);
}

TEST_CASE("each allocation and release is one event with use, bytes, pool and labels", "[tensor]") {
  MemoryFixture f({.pool = Pool::host});
  const auto kept = test::keep_events(f.events);
  f.events.set_phase("forward");
  Tensor::empty(f.memory, MemoryUse::activation, {5});
  const std::vector<Event>& events = *kept;
  REQUIRE(events.size() == 3);
  CHECK((events[1].kind == EventKind::allocate && events[2].kind == EventKind::release));
  for (size_t i : {1, 2}) {
    CHECK((events[i].bytes == 20 && std::string(events[i].what) == "activation"));
    CHECK((std::string(events[i].detail) == "host" && std::string(events[i].phase) == "forward"));
  }
}

TEST_CASE("an allocation whose listener throws leaves nothing behind", "[tensor]") {
  MemoryFixture f;
  f.events.listen([](const Event& e) {
    if (e.kind == EventKind::allocate) throw std::runtime_error("listener");
  });
  CHECK_THROWS_AS(Tensor::empty(f.memory, MemoryUse::activation, {5}), std::runtime_error);
  CHECK(f.memory.ledger().live_total() == 0);
}

TEST_CASE("sizes are printed for people", "[tensor]") {
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.00 KiB");
  CHECK(human_bytes(3 << 19) == "1.50 MiB");
  CHECK(human_bytes(int64_t(5) << 40) == "5.00 TiB");
  CHECK(human_bytes(-2048) == "-2.00 KiB");
}

// In a child process with a limit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

void* volatile last_block;  // volatile, so that the compiler does not remove the allocations

void use_up_all_memory() {
  const rlimit none{1, 1};
  setrlimit(RLIMIT_AS, &none);
  for (size_t bytes = size_t(1) << 20; bytes >= 16; bytes /= 2) {
    do last_block = std::malloc(bytes);
    while (last_block);
  }
}

TEST_CASE("memory can be released when the system has none left for the pool's lists", "[tensor]") {
  if (kSanitized) SKIP("a sanitizer ends the program when it gets no memory");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    EventStream events;
    Memory memory(Device{}, cpu_backend(), events);
    std::vector<void*> blocks;
    for (int64_t i = 0; i < 500; ++i)
      blocks.push_back(memory.allocate(MemoryUse::activation, 1000 + i));
    use_up_all_memory();
    for (int64_t i = 0; i < 500; ++i)
      memory.release(blocks[size_t(i)], MemoryUse::activation, 1000 + i);
    _exit(memory.ledger().live_total() == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
