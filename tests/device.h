// The device on which tests run, by ZEROLAB_TEST_GPU in the environment:
//   not set     the CPU; what tests of tests/cuda ask for is a GPU that tests/cuda/on_cpu makes of
//   the CPU 1           the first real GPU, also for the ranks of all other tests (./zl test --gpu)
//   emulated    the GPU made of the CPU, likewise; slow
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "stages/train/trainer.h"
#include "tensor/platform/gpus.h"

namespace zl::cuda_on_cpu {  // tensor/cuda, compiled for tests/cuda/on_cpu
Gpus find_gpus(int open);
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options = {});
std::unique_ptr<Backend> make_pinned_backend();
void annotate_for_profilers(EventStream& events);
}  // namespace zl::cuda_on_cpu

namespace zl::test {

inline std::string wanted_gpu() {
  const char* wanted = std::getenv("ZEROLAB_TEST_GPU");
  return wanted ? wanted : "";
}
inline bool real_gpu() { return wanted_gpu() == "1"; }

// Skips the case, with the reason, where a real GPU is wanted and there is none. Not for threads of
// ranks.
inline void require_gpu() {
  if (!real_gpu()) return;
  static const Gpus found = find_gpus();
  if (!found.usable()) SKIP(found.problem << ". Cure: " << found.cure);
}

inline Gpus test_gpus() { return real_gpu() ? find_gpus() : cuda_on_cpu::find_gpus(99); }

inline std::unique_ptr<Backend> gpu_of_rank(int index, GpuOptions options = {}) {
  return real_gpu() ? make_gpu_backend(index, options)
                    : cuda_on_cpu::make_gpu_backend(index, options);
}
inline std::unique_ptr<Backend> pinned_memory() {
  return real_gpu() ? make_pinned_backend() : cuda_on_cpu::make_pinned_backend();
}

// The emulated GPU gets small segments: poisoning 32 MiB takes longer than most kernels of a test.
inline GpuOptions emulated_options() { return {.segment = 1 << 16}; }

// Rank r on GPU gpus[r modulo their number].
inline std::function<RankBackends(int rank)> on_test_gpus(
    std::vector<int> gpus = {0},
    GpuOptions options = real_gpu() ? GpuOptions() : emulated_options()) {
  require_gpu();
  return [gpus = std::move(gpus), options](int rank) {
    return RankBackends{gpu_of_rank(gpus[size_t(rank) % gpus.size()], options), pinned_memory()};
  };
}

// For the ranks of tests that do not say where they run.
inline RankBackends backends_of_rank() {
  if (wanted_gpu().empty()) return {};
  return {gpu_of_rank(0), pinned_memory()};
}
inline Backend& device_of(const RankBackends& backends) {
  return backends.device ? *backends.device : cpu_backend();
}

// One for all cases that call kernels. Every block has its own segment, so that a sanitizer sees
// what lies beyond it.
inline Backend& test_gpu() {
  require_gpu();
  static const std::unique_ptr<Backend> backend = gpu_of_rank(0, {.segment = 1});
  return *backend;
}

}  // namespace zl::test
