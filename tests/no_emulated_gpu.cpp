// In place of the GPU that tests/cuda/on_cpu emulates, where no folder with tests on it is built.
#include <stdexcept>

#include "tests/device.h"

namespace zl::cuda_on_cpu {
Gpus find_gpus(int) { return {}; }
std::unique_ptr<Backend> make_gpu_backend(int, GpuOptions) {
  throw std::logic_error("these tests were built without the emulated GPU");
}
std::unique_ptr<Backend> make_pinned_backend() { return make_gpu_backend(0, {}); }

}  // namespace zl::cuda_on_cpu
