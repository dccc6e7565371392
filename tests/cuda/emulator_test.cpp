// What the emulator finds that a kernel must not do, and the NVTX ranges that it records.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "tests/cuda/on_cpu/cuda_runtime.h"
#include "tests/cuda/on_cpu/nvtx3/nvToolsExt.h"
#include "tests/device.h"

namespace {

constexpr unsigned kBlocks = 2, kThreads = 96;

// Each thread writes a number, takes part in a shuffle of its warp, and reads the number of a
// thread of the next warp. Returns how many threads of all blocks read a wrong one.
int wrong_reads(bool barrier) {
  std::vector<unsigned> shared(kThreads);
  int wrong = 0;
  zl::cuda_on_cpu::run(kBlocks, kThreads, [&] {
    const unsigned i = threadIdx.x, number = 1000 * (blockIdx.x + 1);
    shared[i] = number + i;
    __shfl_xor_sync(0xffffffffu, i, 1);
    if (barrier) __syncthreads();
    const unsigned other = (i + 32) % kThreads;
    wrong += shared[other] != number + other;
    __syncthreads();
  });
  return wrong;
}

}  // namespace

TEST_CASE("a missing barrier shows, also where the warps of a kernel shuffle", "[cuda][host]") {
  CHECK(wrong_reads(true) == 0);
  CHECK(wrong_reads(false) > 0);
}

TEST_CASE("a shuffle without one thread of the warp is refused", "[cuda][host]") {
  const auto run = [](unsigned absent) {
    zl::cuda_on_cpu::run(1, kThreads, [=] {
      if (threadIdx.x != absent) __shfl_xor_sync(0xffffffffu, 1, 1);
      __syncthreads();
    });
  };
  run(kThreads);
  CHECK_THROWS_AS(run(40), std::logic_error);
  run(kThreads);  // the next kernel is not disturbed
}

TEST_CASE("phases, units and collectives are ranges, each until the next of its kind",
          "[cuda][host]") {
  zl::cuda_on_cpu::ranges = {};
  const auto open = [] {
    std::vector<std::string> names;
    for (const auto& [id, name] : zl::cuda_on_cpu::ranges.open) names.push_back(name);
    return names;
  };
  {
    zl::EventStream events(2);
    zl::cuda_on_cpu::annotate_for_profilers(events);
    events.set_phase("forward");
    events.set_unit("h.0");
    events.append(zl::EventKind::unit, "before_forward");
    events.append(zl::EventKind::collective_begin, "all_gather", 0, 0, "h.0 parameter");
    CHECK(open() == std::vector<std::string>{"rank 2: forward", "rank 2: h.0 before_forward",
                                             "rank 2: all_gather h.0 parameter"});
    events.append(zl::EventKind::collective_end, "all_gather");
    events.append(zl::EventKind::kernel, "matmul");
    events.append(zl::EventKind::unit, "after_forward");
    CHECK(open() == std::vector<std::string>{"rank 2: forward", "rank 2: h.0 after_forward"});
    events.set_phase("backward");
    CHECK(open() == std::vector<std::string>{"rank 2: backward"});
  }
  CHECK(open().empty());
  CHECK(zl::cuda_on_cpu::ranges.begun.size() == 5);
}
