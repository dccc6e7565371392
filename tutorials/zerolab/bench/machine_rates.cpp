#include "tutorials/zerolab/bench/machine_rates.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "tensor/io/disk.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Binds the calling thread to one of the cores that it may run on. If the system refuses, it places
// the thread itself, which is nearly as good.
void stay_on_core(int thread) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int core = 0, skip = thread % CPU_COUNT(&allowed);
  while (!CPU_ISSET(core, &allowed) || skip-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

// One thread's work, short beside a sample. Returns its amount: operations or bytes.
using Piece = std::function<double()>;

// [1/s] The amount of all threads in a sample, from the first thread's start to the last one's end.
// `prepare` runs on the thread that uses its piece, so that memory is near its core. One sample
// before the first is not counted. Where run.seconds is 0, a sample is one piece.
Spread rate_on_cores(const CoreRun& run, const std::function<Piece()>& prepare) {
  struct Sample {
    Clock::time_point begin, end;
    double done = 0;
  };
  std::vector<std::vector<Sample>> samples(size_t(run.cores),
                                           std::vector<Sample>(size_t(run.samples) + 1));
  bool interrupted = false;  // the same for all threads in each sample
  std::barrier together(run.cores, [&]() noexcept { interrupted = interrupt_requested(); });
  const auto work = [&](int thread) {
    try {
      stay_on_core(thread);
      const Piece piece = prepare();
      for (Sample& sample : samples[size_t(thread)]) {
        together.arrive_and_wait();
        if (interrupted) throw Interrupted();
        sample.begin = Clock::now();
        do sample.done += piece();
        while (sample.end = Clock::now(), seconds_between(sample.begin, sample.end) < run.seconds);
      }
    } catch (...) {
      together.arrive_and_drop();  // the others continue without this thread
      throw;
    }
  };
  std::vector<std::future<void>> threads;
  for (int t = 0; t < run.cores; ++t) threads.push_back(std::async(std::launch::async, work, t));
  for (std::future<void>& thread : threads) thread.get();
  std::vector<double> rates;
  for (size_t i = 1; i <= size_t(run.samples); ++i) {
    Sample all = samples[0][i];
    for (size_t t = 1; t < samples.size(); ++t) {
      const Sample& s = samples[t][i];
      all = {std::min(all.begin, s.begin), std::max(all.end, s.end), all.done + s.done};
    }
    rates.push_back(all.done / seconds_between(all.begin, all.end));
  }
  return spread_of(std::move(rates));
}

// Independent chains of multiply-adds: enough to hide a latency of 4 or 5 cycles on cores that
// begin two per cycle.
constexpr int kChains = 12;

#if defined(__x86_64__)
const float kDecay = 0.999f, kTerm = 0.001f;  // x = 0.999 x + 0.001 stays finite

// In assembly, because debug builds do not optimise this folder but do optimise the kernels:
// without optimisation the compiler would keep the chains in memory. `reg` is "ymm" or "zmm".
// clang-format off
#define ZL_MULTIPLY_ADD_LOOP(reg)                                                             \
  asm volatile(                                                                               \
      "vbroadcastss %[factor], %%" reg "12\n"                                                 \
      "vbroadcastss %[term], %%" reg "13\n"                                                   \
      ".irp chain, 0,1,2,3,4,5,6,7,8,9,10,11\n"                                               \
      "  vmovaps %%" reg "13, %%" reg "\\chain\n"                                             \
      ".endr\n"                                                                               \
      "1: .irp chain, 0,1,2,3,4,5,6,7,8,9,10,11\n"                                            \
      "  vfmadd213ps %%" reg "13, %%" reg "12, %%" reg "\\chain\n"                            \
      ".endr\n"                                                                               \
      "sub $1, %[rounds]\n jnz 1b\n vzeroupper\n"                                             \
      : [rounds] "+r"(rounds)                                                                 \
      : [factor] "m"(kDecay), [term] "m"(kTerm)                                              \
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
        "xmm10", "xmm11", "xmm12", "xmm13")
// clang-format on

__attribute__((target("avx2,fma"))) void multiply_add_256(int64_t rounds) {
  ZL_MULTIPLY_ADD_LOOP("ymm");
}
__attribute__((target("avx512f"))) void multiply_add_512(int64_t rounds) {
  ZL_MULTIPLY_ADD_LOOP("zmm");
}
#undef ZL_MULTIPLY_ADD_LOOP
#endif

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

Spread multiply_add_rate(const CoreRun& run) {
  constexpr int64_t rounds = 20'000;
  Spread best;
  // `floats`: per register.
  [[maybe_unused]] const auto measure = [&](void (*loop)(int64_t), int floats) {
    const Spread rate = rate_on_cores(run, [=]() -> Piece {
      return [=] { return loop(rounds), 2.0 * floats * kChains * rounds; };
    });
    if (rate.max > best.max) best = rate;
  };
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) measure(multiply_add_256, 8);
  if (__builtin_cpu_supports("avx512f")) measure(multiply_add_512, 16);
#endif
  return best;
}

double multiply_add_peak(int64_t cores) {
  return multiply_add_rate({.cores = cores, .samples = 25, .seconds = 1e-3}).max;
}

Spread matmul_rate(int64_t n, const CoreRun& run, const DeviceChoice& device, Dtype dtype) {
  return rate_on_cores(run, [=]() -> Piece {
    const auto x = std::make_shared<Operands>(device, Shape{n, n}, 3, dtype);
    for (const Tensor& t : x->at) kernel::normal({.seed = 1337}, 0, t);  // zeros take less power
    return calls(x, 2.0 * double(n) * double(n) * double(n), [](const auto& t) {
      kernel::matmul(t[0], Transpose::no, t[1], Transpose::no, t[2]);
    });
  });
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
  if (device.on_gpus()) {
    const auto best = [&](int64_t n) { return matmul_rate(n, {}, device, dtype).max; };
    return std::max(best(4096), best(8192));
  }
  // A CPU computes in fp32 whatever it stores.
  const int64_t cores = std::min(device.threads, usable_cores());
  const double peak = multiply_add_peak(cores);
  return peak > 0 ? peak : matmul_rate(kCpuMatrix, {.cores = cores}).max;
}

double copy_rate(const DeviceChoice& device) {
  // Far larger than the caches, which have 50 MB on a large GPU.
  if (device.on_gpus()) return 2 * gpu_copy_rate(device, false, 1024 * kMiB, {}).max;
  return memory_rate(64 * kMiB, {.cores = std::min(device.threads, usable_cores())}).max;
}

Spread latency(int64_t samples, int rounds) {
  alignas(64) std::atomic<int64_t> turn = 0;  // two threads increment it in turn
  std::atomic<int64_t> threads = 0;
  const CoreRun run{.cores = 2, .samples = samples, .seconds = 0};
  const Spread rate = rate_on_cores(run, [&]() -> Piece {
    return [&, rounds, mine = threads++]() mutable {
      for (int i = 0; i < rounds; ++i, mine += 2) {
        for (int spin = 1; turn.load(std::memory_order_acquire) != mine; ++spin)
          if (spin % 100'000 == 0) std::this_thread::yield();  // both may be on one core
        turn.store(mine + 1, std::memory_order_release);
      }
      return double(rounds);
    };
  });
  return {.median = 1 / rate.median, .min = 1 / rate.max, .max = 1 / rate.min};
}

DiskRates disk_rates(const std::string& folder, int64_t bytes, int64_t samples,
                     const std::function<void(const std::string&)>& begin) {
  constexpr int64_t chunk = 8 * kMiB;
  SwapFile file(folder);
  file.reserve(bytes);
  std::vector<std::byte> buffers[2] = {std::vector(chunk, std::byte(1)),
                                       std::vector(chunk, std::byte(1))};
  const auto pass = [&](bool writes) {
    std::unique_ptr<Transfer> last;
    for (int64_t at = 0; at < bytes; at += chunk) {
      const auto part = std::span(buffers[at / chunk % 2]).first(std::min(chunk, bytes - at));
      auto next = writes ? file.start_write(at, part) : file.start_read(at, part);
      if (last) last->wait();
      last = std::move(next);
    }
    last->wait();
  };
  std::vector<double> rates[2];                          // of reads, of writes
  for (int64_t sample = 0; sample <= samples; ++sample)  // the first is not counted
    for (const bool writes : {true, false}) {
      if (interrupt_requested()) throw Interrupted();
      begin(writes ? "disk, write" : "disk, read");
      const auto start = Clock::now();
      pass(writes);
      if (sample > 0) rates[writes].push_back(double(bytes) / seconds_between(start, Clock::now()));
    }
  return {.method = file.method(), .write = spread_of(rates[1]), .read = spread_of(rates[0])};
}

}  // namespace zl::cli
