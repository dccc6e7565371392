// The functions of tensor/platform/gpus.h in a build without CUDA.
#include <stdexcept>

#include "tensor/platform/gpus.h"

namespace zl {
namespace {

[[noreturn]] void not_built() {
  throw std::runtime_error("this build has no CUDA: " + find_gpus(0).cure);
}

}  // namespace

Gpus find_gpus(int) {
  return {.problem = "CUDA is not in this build",
          .cure =
              "cmake --preset default -DZEROLAB_CUDA=ON, with the CUDA Toolkit (12.0 or later), "
              "and build again; 'zerolab doctor' says why CUDA was left out"};
}

void select_gpu(int) { not_built(); }
std::unique_ptr<Backend> make_gpu_backend(int, GpuOptions) { not_built(); }
std::unique_ptr<Backend> make_pinned_backend() { not_built(); }
void annotate_for_profilers(EventStream&) {}

}  // namespace zl
