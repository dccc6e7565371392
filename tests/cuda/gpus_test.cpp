// The results of tensor/platform/gpus.h, and NVTX ranges.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

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
  CHECK_THROWS_AS(make_gpu_backend(0), std::runtime_error);
}

TEST_CASE("matmuls in TF32 are an option, not the default", "[cuda]") {
  require_gpu();
  const auto product = [](bool tf32) {
    const auto gpu = gpu_of_rank(0, {.tf32 = tf32});
    EventStream events;
    Memory memory({DeviceKind::cuda}, *gpu, events);
    const Tensor a = Tensor::empty(memory, MemoryUse::activation, {64, 64}),
                 out = Tensor::empty(memory, MemoryUse::activation, {64, 64});
    kernel::normal({.seed = 3}, 0, a);
    kernel::matmul(a, Transpose::no, a, Transpose::yes, out);
    return kernel::download<float>(out);
  };
  const std::vector<float> exact = product(false), rounded = product(true);
  CHECK(exact == product(false));
  CHECK(exact != rounded);
  for (size_t i = 0; i < exact.size(); ++i) CHECK(std::abs(exact[i] - rounded[i]) < 0.1f);
}
