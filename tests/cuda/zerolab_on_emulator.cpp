// The zerolab program with the GPUs of tests/cuda/on_cpu where CUDA's were, so that `zerolab train
// --device cuda --backend threads` runs on any machine, slowly. Only for tests.
#include "tensor/platform/gpus.h"

namespace zl {
namespace cuda_on_cpu {  // tensor/cuda, compiled for tests/cuda/on_cpu

Gpus find_gpus(int open);
void select_gpu(int index);
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options);
std::unique_ptr<Backend> make_pinned_backend();
void annotate_for_profilers(EventStream& events);

}  // namespace cuda_on_cpu

// The linker takes these five, and leaves the library's where they are.
Gpus find_gpus(int open) { return cuda_on_cpu::find_gpus(open); }
void select_gpu(int index) { cuda_on_cpu::select_gpu(index); }
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options) {
  return cuda_on_cpu::make_gpu_backend(index, options);
}
std::unique_ptr<Backend> make_pinned_backend() { return cuda_on_cpu::make_pinned_backend(); }
void annotate_for_profilers(EventStream& events) { cuda_on_cpu::annotate_for_profilers(events); }

}  // namespace zl
