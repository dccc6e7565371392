// The emulator's threads: that it finds what a kernel must not do.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "tests/cuda/on_cpu/cuda_runtime.h"

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
