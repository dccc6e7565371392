#include <cstdlib>
#include <new>
#include <string_view>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/cuda/launch.h"
#include "tensor/platform/gpus.h"

namespace zl::ZEROLAB_CUDA {
namespace {

// 13020 is "13.2".
std::string version(int number) {
  return number > 0 ? str(number / 1000, ".", number % 1000 / 10) : "";
}

__global__ void any_kernel() {}

struct KnownError {
  cudaError_t status;
  const char *problem, *cure;
};

// Errors whose CUDA message does not say what to do. nvidia-smi lists the GPU in all these cases;
// driver_types.h says more.
constexpr KnownError kKnownErrors[] = {
    {cudaErrorDevicesUnavailable,
     "another process uses it, and it serves one at a time (compute mode Exclusive Process)",
     "end that process, or allow several with nvidia-smi -c DEFAULT"},
    {cudaErrorNoKernelImageForDevice, "this build has no kernels for its compute capability",
     "build with CUDAARCHS=<compute capability without the point>"},
    {cudaErrorJitCompilerNotFound,
     "this build has PTX for it, but the driver's compiler (libnvidia-ptxjitcompiler) is missing",
     "install all of the driver (a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility), or "
     "build with CUDAARCHS=<compute capability without the point>"},
    {cudaErrorUnsupportedPtxVersion,
     "this build has PTX for it, from a toolkit that is newer than the driver, which cannot "
     "compile it",
     "build with CUDAARCHS=<compute capability without the point>, or with a toolkit that is not "
     "newer than the driver, or update the driver"},
    {cudaErrorJitCompilationDisabled,
     "this build has PTX for it, but compiling PTX is switched off",
     "unset CUDA_DISABLE_PTX_JIT, or build with CUDAARCHS=<compute capability without the point>"},
    {cudaErrorSystemNotReady,
     "the GPUs are not ready: where NVSwitch connects them, the service nvidia-fabricmanager must "
     "run, in the driver's version",
     "install the version of nvidia-fabricmanager that nvidia-smi shows for the driver, and run "
     "systemctl restart nvidia-fabricmanager"},
    {cudaErrorSystemDriverMismatch, "the driver was updated, but the kernel still runs the old one",
     "restart the machine, or unload and load the kernel modules nvidia*"},
    {cudaErrorCompatNotSupportedOnDevice,
     "this image brings a newer driver library (cuda-compat), which only runs on data-centre GPUs",
     "update the machine's driver, take an image whose CUDA is not newer than the driver, or "
     "remove cuda-compat from LD_LIBRARY_PATH"}};

const KnownError* known_error(cudaError_t status) {
  if (status == cudaErrorInvalidDeviceFunction) status = cudaErrorNoKernelImageForDevice;
  const auto* found = std::ranges::find(kKnownErrors, status, &KnownError::status);
  return found == std::end(kKnownErrors) ? nullptr : found;
}

// With this GPU's number where the text has a placeholder.
std::string with_capability(std::string text, const Gpu& gpu) {
  constexpr std::string_view placeholder = "<compute capability without the point>";
  if (const size_t at = text.find(placeholder); at != text.npos)
    text.replace(at, placeholder.size(), str(gpu.compute_major, gpu.compute_minor));
  return text;
}

// Why this program cannot use the GPU, and how to fix it; "" if it can.
std::string open_problem(Gpu& gpu) {
  cudaFuncAttributes attributes{};
  size_t available = 0, total = 0;
  cudaError_t status = cudaSetDevice(gpu.index);
  if (status == cudaSuccess) status = cudaMemGetInfo(&available, &total);
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, any_kernel);
  gpu.available = int64_t(available);
  if (status == cudaSuccess) return "";
  const KnownError* const known = known_error(status);
  return known ? str(known->problem, "; ", with_capability(known->cure, gpu))
               : cudaGetErrorString(status);
}

Gpu ask(int index, int count, bool open) {
  Gpu gpu{.index = index};
  cudaDeviceProp properties{};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, index);
      status != cudaSuccess) {
    gpu.problem = cudaGetErrorString(status);
    cudaGetLastError();
    return gpu;
  }
  gpu.name = properties.name;
  char pci[32] = "";
  if (cudaDeviceGetPCIBusId(pci, sizeof pci, index) == cudaSuccess) gpu.pci = pci;
  gpu.memory = int64_t(properties.totalGlobalMem);
  gpu.compute_major = properties.major;
  gpu.compute_minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != index && cudaDeviceCanAccessPeer(&can, index, other) == cudaSuccess && can)
      gpu.peers.push_back(other);
  }
  if (open) gpu.problem = open_problem(gpu);
  cudaGetLastError();  // clears the error, which the next call would report
  return gpu;
}

// Why no GPU was found, and how to fix it.
void explain(cudaError_t status, Gpus& found) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  found.broken = !found.driver.empty() && status != cudaErrorNoDevice;
  if (found.driver.empty()) {
    found.problem = "this machine has no NVIDIA driver, or this container does not see it";
    found.cure =
        "install the driver until nvidia-smi lists the GPU; start a container with --gpus all";
  } else if (status == cudaErrorInsufficientDriver) {
    found.problem = str("the driver runs CUDA up to ", found.driver,
                        ", but this program was built with ", found.toolkit);
    found.cure = "update the driver, or build with a toolkit of the driver's version";
  } else if (status == cudaErrorNoDevice && visible) {
    found.problem = str("no GPU is visible: CUDA_VISIBLE_DEVICES is \"", visible, "\"");
    found.cure = "unset CUDA_VISIBLE_DEVICES, or ask the scheduler for a GPU";
  } else if (const KnownError* known = known_error(status)) {
    found.problem = known->problem;
    found.cure = known->cure;
  } else {
    found.problem = str("no GPU can be used: CUDA says: ", cudaGetErrorString(status));
    found.cure =
        "nvidia-smi must list the GPU; if it does not, restart the machine or ask its "
        "administrator";
  }
}

// CPU kernels on pinned memory.
class PinnedBackend final : public CpuBackend {
 public:
  int64_t segment() const override { return GpuOptions().segment; }
  void* allocate(int64_t bytes) override {
    void* segment = nullptr;
    if (cudaHostAlloc(&segment, size_t(bytes), cudaHostAllocPortable) == cudaSuccess)
      return segment;
    cudaGetLastError();
    return nullptr;
  }
  void release(void* segment, int64_t) noexcept override { cudaFreeHost(segment); }
};

}  // namespace

Gpus find_gpus(int open) {
  Gpus found{.built_in = true};
  int toolkit = 0, driver = 0, count = 0, current = 0;
  cudaRuntimeGetVersion(&toolkit);
  cudaDriverGetVersion(&driver);
  found.toolkit = version(toolkit);
  found.driver = version(driver);
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    explain(status == cudaSuccess ? cudaErrorNoDevice : status, found);
    cudaGetLastError();
    return found;
  }
  cudaGetDevice(&current);
  for (int i = 0; i < count; ++i) found.gpus.push_back(ask(i, count, i < open));
  // Only if this function has changed it: selecting a GPU opens it.
  if (open > 0 && cudaSetDevice(current) != cudaSuccess) cudaGetLastError();
  if (std::none_of(found.gpus.begin(), found.gpus.end(),
                   [](const Gpu& gpu) { return gpu.problem.empty(); })) {
    found.problem =
        str(count > 1 ? str("none of ", count, " GPUs can be used; ") : "", "GPU 0 (",
            found.gpus[0].name, ")", count > 1 ? ": " : " cannot be used: ", found.gpus[0].problem);
    found.cure = "run zerolab doctor, which says this for every GPU";
    found.broken = true;
  }
  return found;
}

void select_gpu(int index) { require_cuda(cudaSetDevice(index), "cannot use the GPU"); }
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options) {
  return std::make_unique<CudaBackend>(index, options);
}
std::unique_ptr<Backend> make_pinned_backend() { return std::make_unique<PinnedBackend>(); }

}  // namespace zl::ZEROLAB_CUDA

#ifndef ZEROLAB_CUDA_ON_CPU
namespace zl {

Gpus find_gpus(int open) { return cuda::find_gpus(open); }
void select_gpu(int index) { cuda::select_gpu(index); }
std::unique_ptr<Backend> make_gpu_backend(int index, GpuOptions options) {
  return cuda::make_gpu_backend(index, options);
}
std::unique_ptr<Backend> make_pinned_backend() { return cuda::make_pinned_backend(); }
void annotate_for_profilers(EventStream& events) { cuda::annotate_for_profilers(events); }

}  // namespace zl
#endif
