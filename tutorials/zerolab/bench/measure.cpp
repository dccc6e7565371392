#include "tutorials/zerolab/bench/measure.h"

#include <algorithm>
#include <cmath>

#include "tensor/cpu/compute_threads.h"
#include "tensor/reference/reference_backend.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

constexpr double kSample = 1e-3;  // [s] at least per sample
constexpr double kWarm = 20e-3;   // [s] before the first sample: clocks rise, pages are mapped
constexpr int kPeakSamples = 7;
// [B] Far larger than the caches, which have 50 MB on a large GPU.
constexpr int64_t kHostCopy = int64_t(64) << 20, kGpuCopy = int64_t(1) << 30;
constexpr int64_t kGpuMatrices[] = {4096, 8192};

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t n = samples.size();
  return {.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
          .min = samples.front(),
          .max = samples.back()};
}

std::string short_seconds(double seconds) {
  return seconds < 1e-3 ? digits(1e6 * seconds, 3) + " µs"
         : seconds < 1  ? digits(1e3 * seconds, 3) + " ms"
                        : digits(seconds, 3) + " s";
}

Workbench::Workbench(const DeviceChoice& device)
    : gpu_(device.on_gpus()), threads_(device.threads), events_(0, 64) {
  set_compute_threads(threads_);

  const int index = gpu_ ? device.gpus.at(0).index : 0;
  if (device.reference) backend_ = std::make_unique<ReferenceBackend>();
  if (gpu_) backend_ = make_gpu_backend(index, {.tf32 = device.tf32});
  memory_ = std::make_unique<Memory>(Device{device.kind, index},
                                     backend_ ? *backend_ : cpu_backend(), events_);
  events_.listen([this](const Event& e) {
    if (e.kind == EventKind::kernel) counted_.operations += e.count, counted_.bytes += e.bytes;
  });
}

Workbench::Count Workbench::count(const std::function<void()>& work) {
  counted_ = {};
  work();
  return counted_;
}

Spread Workbench::time(const std::function<void()>& work, int samples) {
  Backend& backend = memory().backend();
  backend.seconds(work);  // the first call may load and choose kernels
  const double once = std::max(backend.seconds(work), 1e-7);
  const auto repeats = int64_t(std::clamp(std::ceil(kSample / once), 1.0, 1e4));
  const auto sample = [&] {
    if (interrupt_requested()) throw Interrupted();
    return backend.seconds([&] {
      for (int64_t i = 0; i < repeats; ++i) work();
    });
  };
  for (double warm = once; warm < kWarm;) warm += std::max(sample(), 1e-4);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(sample() / double(repeats));
  return spread_of(std::move(seconds));
}

Tensor Workbench::noise(Shape shape, Dtype dtype) {
  Tensor t = Tensor::empty(memory(), MemoryUse::activation, std::move(shape), dtype);
  kernel::normal({.seed = 1337, .stream = uint64_t(memory().allocations())}, 0, t);
  return t;
}

Spread Workbench::copy_rate(Memory& from, int64_t bytes, int samples) {
  const Tensor there = Tensor::zeros(from, MemoryUse::activation, {bytes / 4}),
               here = Tensor::zeros(memory(), MemoryUse::activation, {bytes / 4});
  const Spread seconds = time([&] { kernel::copy(there, here); }, samples);
  const auto all = double(here.bytes());
  return {.median = all / seconds.median, .min = all / seconds.max, .max = all / seconds.min};
}

double Workbench::copy_rate() {
  return 2 * copy_rate(memory(), gpu_ ? kGpuCopy : kHostCopy, kPeakSamples).max;
}

double Workbench::matmul_rate(int64_t n, Dtype dtype) {
  const Tensor a = noise({n, n}, dtype), b = noise({n, n}, dtype), out = noise({n, n}, dtype);
  const auto matmul = [&] { kernel::matmul(a, Transpose::no, b, Transpose::no, out); };
  return 2.0 * double(n) * double(n) * double(n) / time(matmul, kPeakSamples).min;
}

double Workbench::operation_rate(Dtype dtype) {
  // A CPU computes in fp32 whatever it stores.
  double best = gpu_ ? 0 : multiply_add_peak(std::min(threads_, usable_cores()));
  if (!gpu_ && best == 0) best = matmul_rate(kCpuMatrix, dtype);
  for (const int64_t n : kGpuMatrices)
    if (gpu_) best = std::max(best, matmul_rate(n, dtype));
  return best;
}

}  // namespace zl::cli
