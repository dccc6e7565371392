// Memory on a GPU: its pool takes segments from the driver.
#include <catch2/catch_test_macros.hpp>

#include "tests/cuda/differential.h"

using namespace zl;
using namespace zl::test;

namespace {

struct GpuMemory {
  std::unique_ptr<Backend> gpu = (require_gpu(), gpu_of_rank(0));
  EventStream events;
  Memory memory{{DeviceKind::cuda}, *gpu, events};
  char* allocate(int64_t bytes) {
    return static_cast<char*>(memory.allocate(MemoryUse::activation, bytes));
  }
  void release(void* block, int64_t bytes) { memory.release(block, MemoryUse::activation, bytes); }
};

}  // namespace

TEST_CASE("one segment from a GPU's driver serves many blocks, aligned to 256 bytes", "[cuda]") {
  GpuMemory f;
  char* const a = f.allocate(1);
  char* const b = f.allocate(1000);
  CHECK((uintptr_t(a) % 256 == 0 && b == a + 256));
  CHECK(f.memory.system_calls() == 1);
  char* const large = f.allocate(GpuOptions().segment + 1);
  CHECK(f.memory.system_calls() == 2);
  f.release(a, 1);
  f.release(b, 1000);
  f.release(large, GpuOptions().segment + 1);
  CHECK(f.memory.system_calls() == 2);
}

TEST_CASE("a full GPU gets its unused segments back before an allocation fails", "[cuda]") {
  if (real_gpu()) SKIP("others may use this GPU");
  const int64_t most = int64_t(1) << 30, whole = most - (64 << 20);  // the rest: of other cases
  for (int repeat = 0; repeat < 2; ++repeat) {  // the first Memory gives back what it has taken
    GpuMemory f;
    char* const half = f.allocate(most / 2);
    CHECK_THROWS_AS(f.allocate(most), OutOfMemory);
    f.release(half, most / 2);
    char* const block = f.allocate(whole);
    CHECK_THROWS_AS(f.allocate(most / 2), OutOfMemory);
    f.release(block, whole);
  }
}
