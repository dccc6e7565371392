#include "tutorials/zerolab/bench/machine_rates.h"

#include <algorithm>
#include <memory>

#include "tensor/io/disk.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {
namespace {

// [1/s] Of calls that do `amount` each, by the device's clock: seven samples of at least 10 ms. The
// first two calls are not counted.
Spread rate_of(Backend& backend, double amount, const std::function<void()>& call) {
  const auto seconds = [&](int64_t calls) {
    if (interrupt_requested()) throw Interrupted();
    return backend.seconds([&] {
      for (int64_t i = 0; i < calls; ++i) call();
    });
  };
  seconds(1);
  const int64_t calls = 1 + int64_t(0.01 / std::max(seconds(1), 1e-7));
  std::vector<double> rates(7);
  for (double& rate : rates) rate = double(calls) * amount / seconds(calls);
  return spread_of(std::move(rates));
}

// The memory of the first GPU, or of the CPU.
struct Place {
  explicit Place(const DeviceChoice& device)
      : index(device.on_gpus() ? device.gpus.at(0).index : 0),
        gpu(device.on_gpus() ? make_gpu_backend(index, {.tf32 = device.tf32}) : nullptr),
        memory({device.kind, index}, gpu ? *gpu : cpu_backend(), events) {}

  const int index;
  const std::unique_ptr<Backend> gpu;
  EventStream events;
  Memory memory;
};

Tensor zeros(Memory& memory, const Shape& shape, Dtype dtype = Dtype::f32) {
  return Tensor::zeros(memory, MemoryUse::workspace, shape, dtype);
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t n = samples.size();
  return {.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
          .min = samples.front(),
          .max = samples.back(),
          .quartile = samples[n / 4]};
}

Spread matmul_rate(const DeviceChoice& device, int64_t n, Dtype dtype) {
  Place place(device);
  const Tensor a = zeros(place.memory, {n, n}, dtype), b = zeros(place.memory, {n, n}, dtype),
               out = zeros(place.memory, {n, n}, dtype);
  for (const Tensor* t : {&a, &b}) kernel::normal({.seed = 1337}, 0, *t);  // zeros take less power
  return rate_of(place.memory.backend(), 2.0 * double(n) * double(n) * double(n),
                 [&] { kernel::matmul({a}, {b}, {}, out); });
}

double operation_rate(const DeviceChoice& device, Dtype dtype) {
  const bool gpu = device.on_gpus();
  double best = 0;
  for (const int64_t n : gpu ? std::vector{4096, 8192} : std::vector{256, 512, 1024})
    // A CPU computes in fp32 whatever it stores.
    best = std::max(best, matmul_rate(device, n, gpu ? dtype : Dtype::f32).max);
  return best;
}

Spread copy_rate(const DeviceChoice& device, int64_t bytes, bool from_host) {
  Place place(device);
  const auto pinned = from_host ? make_pinned_backend() : nullptr;
  Memory host({}, pinned ? *pinned : cpu_backend(), place.events, {.pool = Pool::host});
  const Tensor from = zeros(from_host ? host : place.memory, {bytes / 4}),
               to = zeros(place.memory, {bytes / 4});
  return rate_of(place.memory.backend(), double(bytes), [&] { kernel::copy(from, to); });
}

double copy_rate(const DeviceChoice& device) {
  // Far larger than the caches, which have 50 MB on a large GPU.
  return 2 * copy_rate(device, (device.on_gpus() ? 1024 : 64) * kMiB).max;
}

DiskRates disk_rates(const std::string& folder, int64_t bytes) {
  const auto backend = make_disk_backend(folder);
  Place host({});
  Memory disk({}, *backend, host.events, {.pool = Pool::disk});
  const Tensor file = Tensor::empty(disk, MemoryUse::workspace, {bytes / 4}),
               data = zeros(host.memory, {bytes / 4});
  const auto rate = [&](const Tensor& from, const Tensor& to) {
    return rate_of(cpu_backend(), double(bytes), [&] { kernel::start_copy(from, to).get(); })
        .median;
  };
  return {.method =
              backend->name() == std::string("disk") ? "waits for the device" : "in the page cache",
          .write = rate(data, file),
          .read = rate(file, data)};
}

}  // namespace zl::cli
