#include "tutorials/zerolab/bench/machine_rates.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "tensor/io/disk.h"
#include "tutorials/zerolab/cli/interrupt.h"

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
// before the first is not counted.
Spread rate_on_cores(const CoreRun& run, const std::function<Piece()>& prepare) {
  struct Sample {
    Clock::time_point begin, end;
    double done = 0;
  };
  std::vector<std::vector<Sample>> samples(size_t(run.cores),
                                           std::vector<Sample>(size_t(run.samples) + 1));
  std::barrier together(run.cores);
  const auto work = [&](int thread) {
    try {
      stay_on_core(thread);
      const Piece piece = prepare();
      for (Sample& sample : samples[size_t(thread)]) {
        if (interrupt_requested()) throw Interrupted();
        together.arrive_and_wait();
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

struct MultiplyAddLoop {
  int floats;  // per register
  void (*run)(int64_t rounds);
};

std::vector<MultiplyAddLoop> multiply_add_loops() {  // which this CPU can run
  std::vector<MultiplyAddLoop> loops;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    loops.push_back({8, multiply_add_256});
  if (__builtin_cpu_supports("avx512f")) loops.push_back({16, multiply_add_512});
#endif
  return loops;
}

// Tensors of zeros that one thread allocates and writes first.
struct ThreadTensors {
  ThreadTensors(const Shape& shape, int count) {
    for (int i = 0; i < count; ++i)
      at.push_back(Tensor::zeros(bench.memory(), MemoryUse::workspace, shape));
  }
  Workbench bench;
  std::vector<Tensor> at;  // destroyed before their memory
};

void run_pass(const std::vector<Tensor>& arrays) {  // two of a copy, three of a triad
  const float *a = arrays[0].data<float>().data(), *b = arrays[1].data<float>().data();
  float* out = arrays.back().data<float>().data();
  const int64_t n = arrays[0].numel();
  if (arrays.size() == 2) {
    std::memcpy(out, a, size_t(n) * sizeof(float));
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + 0.5f * b[i];
}

// The last round that one of two threads may begin. The other thread sets it. std::atomic::wait
// would spin before it sleeps.
struct Turn {
  alignas(64) std::atomic<int> turn{0};
  std::mutex mutex;
  std::condition_variable changed;
  void set(int round, bool sleeping) {
    if (!sleeping) return turn.store(round, std::memory_order_release);
    {
      const std::lock_guard lock(mutex);
      turn = round;
    }
    changed.notify_one();
  }
  void wait(int round, bool sleeping) {
    if (sleeping) {
      std::unique_lock lock(mutex);
      return changed.wait(lock, [&] { return turn == round; });
    }
    for (int i = 1; turn.load(std::memory_order_acquire) != round; ++i)
      if (i % 100'000 == 0) std::this_thread::yield();  // both threads may be on one core
  }
};

}  // namespace

bool has_multiply_add() { return !multiply_add_loops().empty(); }

Spread multiply_add_rate(const CoreRun& run) {
  constexpr int64_t rounds = 20'000;
  Spread best;
  for (const MultiplyAddLoop& loop : multiply_add_loops()) {
    const Spread rate = rate_on_cores(run, [&]() -> Piece {
      return [&] { return loop.run(rounds), 2.0 * loop.floats * kChains * rounds; };
    });
    if (rate.max > best.max) best = rate;
  }
  return best;
}

double multiply_add_peak(int cores) {
  return multiply_add_rate({.cores = cores, .samples = 25, .seconds = 1e-3}).max;
}

Spread matmul_rate(int64_t n, const CoreRun& run) {
  return rate_on_cores(run, [n]() -> Piece {
    const auto x = std::make_shared<ThreadTensors>(Shape{n, n}, 3);
    return [=] {
      kernel::matmul(x->at[0], Transpose::no, x->at[1], Transpose::no, x->at[2]);
      return 2.0 * double(n) * double(n) * double(n);
    };
  });
}

Spread memory_rate(MemoryPass pass, int64_t array, const CoreRun& run) {
  const int64_t elements = std::max<int64_t>(array / int64_t(sizeof(float)) / run.cores, 1);
  const int arrays = pass == MemoryPass::copy ? 2 : 3;
  return rate_on_cores(run, [=]() -> Piece {
    const auto x = std::make_shared<ThreadTensors>(Shape{elements}, arrays);
    return [=] {
      run_pass(x->at);
      return double(arrays) * double(elements) * sizeof(float);
    };
  });
}

Spread latency(bool sleeping, int samples, int rounds) {
  std::vector<double> seconds;
  for (int sample = 0; sample <= samples; ++sample) {  // the first is not counted
    if (interrupt_requested()) throw Interrupted();
    Turn first, second;
    std::thread other([&] {
      stay_on_core(1);
      for (int i = 1; i <= rounds; ++i) second.wait(i, sleeping), first.set(i, sleeping);
    });
    std::thread one([&] {
      stay_on_core(0);
      const auto begin = Clock::now();
      for (int i = 1; i <= rounds; ++i) second.set(i, sleeping), first.wait(i, sleeping);
      if (sample > 0) seconds.push_back(seconds_between(begin, Clock::now()) / (2.0 * rounds));
    });
    one.join();
    other.join();
  }
  return spread_of(std::move(seconds));
}

DiskRates disk_rates(const std::string& folder, int64_t bytes, int samples,
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
  std::vector<double> rates[2];                      // of reads, of writes
  for (int sample = 0; sample <= samples; ++sample)  // the first is not counted
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
