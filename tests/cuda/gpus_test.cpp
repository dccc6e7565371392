// The results of tensor/platform/gpus.h, and the memory of a GPU, whose pool takes segments from
// the driver.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>

#include "tensor/kernels.h"
#include "tests/device.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("GPUs are found with what a user asks of them", "[cuda]") {
  require_gpu();
  const Gpus found = test_gpus();
  REQUIRE(found.usable());
  CHECK(found.built_in);
  CHECK(!found.toolkit.empty());
  CHECK(!found.driver.empty());
  REQUIRE(!found.gpus.empty());
  for (const Gpu& gpu : found.gpus) {
    CHECK(!gpu.name.empty());
    CHECK((gpu.available > 0 && gpu.available <= gpu.memory));
    CHECK(gpu.compute_major >= 5);
    CHECK(gpu.problem == "");
  }
}

TEST_CASE("a GPU that is not there is refused with the number that are", "[cuda]") {
  require_gpu();
  CHECK_THROWS_AS(gpu_of_rank(99), std::runtime_error);
  CHECK_THROWS_AS(gpu_of_rank(-1), std::runtime_error);
}

TEST_CASE("a build or a machine without a GPU says why and what to do", "[cuda][host]") {
  const Gpus found = find_gpus();
  if (found.usable()) SKIP("this machine has a GPU");
  CHECK(!found.problem.empty());
  CHECK(!found.cure.empty());
  CHECK_THROWS_AS(zl::make_gpu_backend(0), std::runtime_error);
}

// TF32 is allowed, not demanded: GPUs before Ampere have none, NVIDIA_TF32_OVERRIDE=0 forbids it,
// and cuBLAS need not use it for small matrices.
TEST_CASE("matmuls in TF32 are an option, not the default", "[cuda]") {
  require_gpu();
  if (test_gpus().gpus.at(0).compute_major < 8) SKIP("this GPU has no TF32");
  if (const char* override = std::getenv("NVIDIA_TF32_OVERRIDE"); override && *override == '0')
    SKIP("NVIDIA_TF32_OVERRIDE=0 forbids TF32");
  constexpr int64_t n = 512;
  const auto product = [](bool tf32) {
    const auto gpu = gpu_of_rank(0, {.tf32 = tf32});
    EventStream events;
    Memory memory({DeviceKind::cuda}, *gpu, events);
    const Tensor a = Tensor::empty(memory, MemoryUse::activation, {n, n}),
                 out = Tensor::empty(memory, MemoryUse::activation, {n, n});
    kernel::normal({.seed = 3}, 0, a);
    kernel::matmul({a}, {a, Transpose::yes}, {}, out);
    return kernel::download<float>(out);
  };
  const std::vector<float> exact = product(false), rounded = product(true);
  CHECK(exact == product(false));
  CHECK(exact != rounded);
  // The deviation of an element is at most 0.02: of 512 products, each rounded twice by up to
  // 2^-11.
  float largest = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(exact[i] - rounded[i]));
  CHECK(largest < 0.2f);
}

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
