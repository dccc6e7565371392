#include "tutorials/zerolab/bench/machine_rates.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>

#include "tensor/io/disk.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One thread's work, short beside a sample. Returns its amount: operations or bytes.
using Piece = std::function<double()>;

// [1/s] The rates of all threads together, which begin each sample at the same time. `prepare` runs
// on the thread that uses its piece, so that memory is near its core. One sample before the first
// is not counted.
Spread rate_on_cores(const CoreRun& run, const std::function<Piece()>& prepare) {
  std::vector<std::vector<double>> rates(size_t(run.cores),
                                         std::vector<double>(size_t(run.samples) + 1));
  std::barrier together(run.cores);
  const auto work = [&](std::vector<double>* mine) {
    try {
      const Piece piece = prepare();
      for (double& rate : *mine) {
        together.arrive_and_wait();
        if (interrupt_requested()) throw Interrupted();
        const auto begin = Clock::now();
        double done = piece(), seconds = seconds_since(begin);
        for (; seconds < run.seconds; seconds = seconds_since(begin)) done += piece();
        rate = done / seconds;
      }
    } catch (...) {
      together.arrive_and_drop();  // the others continue without this thread
      throw;
    }
  };
  std::vector<std::future<void>> threads;
  for (auto& mine : rates) threads.push_back(std::async(std::launch::async, work, &mine));
  for (std::future<void>& thread : threads) thread.get();
  std::vector<double> sums(size_t(run.samples));
  for (const auto& of_thread : rates)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += of_thread[i + 1];
  return spread_of(std::move(sums));
}

// Tensors of zeros that one thread allocates and writes first.
struct Operands {
  Operands(const DeviceChoice& device, const Shape& shape, int count, Dtype dtype = Dtype::f32,
           bool first_on_host = false) {
    const int index = device.on_gpus() ? device.gpus.at(0).index : 0;
    if (device.on_gpus()) backend = make_gpu_backend(index, {.tf32 = device.tf32});
    memory = std::make_unique<Memory>(Device{device.kind, index},
                                      backend ? *backend : cpu_backend(), events);
    if (first_on_host) {
      pinned = make_pinned_backend();
      host = std::make_unique<Memory>(Device{DeviceKind::cpu}, *pinned, events,
                                      MemoryOptions{.pool = Pool::host});
    }
    for (int i = 0; i < count; ++i)
      at.push_back(
          Tensor::zeros(i == 0 && host ? *host : *memory, MemoryUse::workspace, shape, dtype));
  }
  std::unique_ptr<Backend> backend, pinned;  // null: the CPU's, none
  EventStream events;
  std::unique_ptr<Memory> memory, host;
  std::vector<Tensor> at;  // destroyed before their memory
};

// Calls of a kernel, of which each returns `amount`. A GPU has some in its queue, so that it does
// not wait for the host.
Piece calls(const std::shared_ptr<Operands>& x, double amount,
            const std::function<void(const std::vector<Tensor>&)>& kernel) {
  const int queued = x->backend ? 4 : 1;
  return [=] {
    for (int i = 0; i < queued; ++i) kernel(x->at);
    x->memory->backend().synchronize();
    return queued * amount;
  };
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t n = samples.size();
  return {.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
          .min = samples.front(),
          .max = samples.back()};
}

double matmul_rate(int64_t n, const CoreRun& run, const DeviceChoice& device, Dtype dtype) {
  const auto prepare = [=]() -> Piece {
    const auto x = std::make_shared<Operands>(device, Shape{n, n}, 3, dtype);
    for (const Tensor& t : x->at) kernel::normal({.seed = 1337}, 0, t);  // zeros take less power
    return calls(x, 2.0 * double(n) * double(n) * double(n),
                 [](const auto& t) { kernel::matmul({t[0]}, {t[1]}, {}, t[2]); });
  };
  return rate_on_cores(run, prepare).max;
}

Spread memory_rate(int64_t array, const CoreRun& run) {
  const int64_t bytes = std::max<int64_t>(array / 4 / run.cores, 1) * 4;
  return rate_on_cores(run, [=]() -> Piece {
    const auto x = std::make_shared<Operands>(DeviceChoice(), Shape{bytes / 4}, 2);
    return calls(x, 2 * double(bytes), [bytes](const auto& t) {
      std::memcpy(t[1].address(), t[0].address(), size_t(bytes));
    });
  });
}

Spread gpu_copy_rate(const DeviceChoice& gpu, bool from_host, int64_t bytes, const CoreRun& run) {
  return rate_on_cores(run, [=]() -> Piece {
    const auto x = std::make_shared<Operands>(gpu, Shape{bytes / 4}, 2, Dtype::f32, from_host);
    return calls(x, double(bytes), [](const auto& t) { kernel::copy(t[0], t[1]); });
  });
}

double operation_rate(const DeviceChoice& device, Dtype dtype) {
  const bool gpu = device.on_gpus();
  const CoreRun run{.cores = gpu ? 1 : std::min(device.threads, usable_cores())};
  double best = 0;
  for (const int64_t n : gpu ? std::vector{4096, 8192} : std::vector{128, 256, kCpuMatrix})
    // A CPU computes in fp32 whatever it stores.
    best = std::max(best, matmul_rate(n, run, device, gpu ? dtype : Dtype::f32));
  return best;
}

double copy_rate(const DeviceChoice& device) {
  // Far larger than the caches, which have 50 MB on a large GPU.
  if (device.on_gpus()) return 2 * gpu_copy_rate(device, false, 1024 * kMiB, {}).max;
  return memory_rate(64 * kMiB, {.cores = std::min(device.threads, usable_cores())}).max;
}

DiskRates disk_rates(const std::string& folder, int64_t bytes, int64_t samples) {
  const auto backend = make_disk_backend(folder);
  EventStream events;
  Memory disk({}, *backend, events, {.pool = Pool::disk}), host({}, cpu_backend(), events);
  const Tensor file = Tensor::empty(disk, MemoryUse::workspace, {bytes / 4}),
               data = Tensor::zeros(host, MemoryUse::workspace, {bytes / 4});
  std::vector<double> rates[2];                          // of reads, of writes
  for (int64_t sample = 0; sample <= samples; ++sample)  // the first is not counted
    for (const bool writes : {true, false}) {
      if (interrupt_requested()) throw Interrupted();
      const auto begin = Clock::now();
      (writes ? kernel::start_copy(data, file) : kernel::start_copy(file, data)).get();
      if (sample > 0) rates[writes].push_back(double(bytes) / seconds_since(begin));
    }
  return {.method =
              backend->name() == std::string("disk") ? "waits for the device" : "in the page cache",
          .write = spread_of(rates[1]).median,
          .read = spread_of(rates[0]).median};
}

}  // namespace zl::cli
