#include "tutorials/zerolab/bench/machine_rates.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

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

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#define FOR_AVX2 __attribute__((target("avx2")))
#else
bool has_avx2() { return false; }
#define FOR_AVX2
#endif

// These loops are compiled twice: for AVX2 and for any CPU.
[[gnu::always_inline]] inline void triad_loop(float* __restrict c, const float* __restrict a,
                                              const float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) c[i] = a[i] + 0.5f * b[i];
}
// Exclusive or, because a compiler may not vectorise a sum of floats.
[[gnu::always_inline]] inline uint32_t read_loop(const float* a, int64_t n) {
  uint32_t all = 0;
  for (int64_t i = 0; i < n; ++i) all ^= std::bit_cast<uint32_t>(a[i]);
  return all;
}
FOR_AVX2 void triad_avx2(float* c, const float* a, const float* b, int64_t n) {
  triad_loop(c, a, b, n);
}
FOR_AVX2 uint32_t read_avx2(const float* a, int64_t n) { return read_loop(a, n); }

// Tensors of zeros that one thread allocates and writes first.
struct ThreadTensors {
  ThreadTensors(const Shape& shape, int count) {
    for (int i = 0; i < count; ++i)
      at.push_back(Tensor::zeros(bench.memory(), MemoryUse::workspace, shape));
  }
  Workbench bench;
  std::vector<Tensor> at;  // destroyed before their memory
};

void run_pass(MemoryPass pass, const std::vector<Tensor>& arrays) {
  float* x[3] = {};
  for (size_t i = 0; i < arrays.size(); ++i) x[i] = arrays[i].data<float>().data();
  const int64_t n = arrays[0].numel();
  if (pass == MemoryPass::copy) {
    std::memcpy(x[1], x[0], size_t(n) * sizeof(float));
  } else if (pass == MemoryPass::triad) {
    has_avx2() ? triad_avx2(x[2], x[0], x[1], n) : triad_loop(x[2], x[0], x[1], n);
  } else {
    [[maybe_unused]] volatile uint32_t keep = has_avx2() ? read_avx2(x[0], n) : read_loop(x[0], n);
  }
}

// The last round that one of two threads may begin. The other thread sets it.
struct SpinningTurn {
  alignas(64) std::atomic<int> turn{0};
  void set(int round) { turn.store(round, std::memory_order_release); }
  void wait(int round) {
    for (int i = 1; turn.load(std::memory_order_acquire) != round; ++i)
      if (i % 100'000 == 0) std::this_thread::yield();  // both threads may be on one core
  }
};
struct SleepingTurn {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  void set(int round) {
    {
      const std::lock_guard lock(mutex);
      turn = round;
    }
    changed.notify_one();
  }
  void wait(int round) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return turn == round; });
  }
};

// Each sample is `rounds` round trips between two cores. One before the first is not counted.
template <class Turn>
Spread latency(int samples, int rounds) {
  std::vector<double> seconds;
  for (int sample = 0; sample <= samples; ++sample) {
    if (interrupt_requested()) throw Interrupted();
    Turn first, second;
    std::thread other([&] {
      stay_on_core(1);
      for (int i = 1; i <= rounds; ++i) second.wait(i), first.set(i);
    });
    std::thread one([&] {
      stay_on_core(0);
      const auto begin = Clock::now();
      for (int i = 1; i <= rounds; ++i) second.set(i), first.wait(i);
      if (sample > 0) seconds.push_back(seconds_between(begin, Clock::now()) / (2.0 * rounds));
    });
    one.join();
    other.join();
  }
  return spread_of(std::move(seconds));
}

}  // namespace

std::vector<MultiplyAddLoop> multiply_add_loops() {
  std::vector<MultiplyAddLoop> loops;
#if defined(__x86_64__)
  if (has_avx2()) loops.push_back({"AVX2", "multiply_add_avx2", 8, multiply_add_256});
  if (__builtin_cpu_supports("avx512f"))
    loops.push_back({"AVX-512", "multiply_add_avx512", 16, multiply_add_512});
#endif
  return loops;
}

Spread multiply_add_rate(const MultiplyAddLoop& loop, const CoreRun& run) {
  constexpr int64_t rounds = 20'000;
  return rate_on_cores(run, [&]() -> Piece {
    return [&] { return loop.run(rounds), 2.0 * loop.floats * kChains * rounds; };
  });
}

double multiply_add_peak(int cores) {
  double peak = 0;
  for (const MultiplyAddLoop& loop : multiply_add_loops())
    peak = std::max(peak,
                    multiply_add_rate(loop, {.cores = cores, .samples = 25, .seconds = 1e-3}).max);
  return peak;
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

int arrays_of(MemoryPass pass) {
  return pass == MemoryPass::copy ? 2 : pass == MemoryPass::triad ? 3 : 1;
}

const char* name(MemoryPass pass) {
  return pass == MemoryPass::copy ? "copy" : pass == MemoryPass::triad ? "triad" : "read";
}

Spread memory_rate(MemoryPass pass, int64_t array, const CoreRun& run) {
  const int64_t elements = std::max<int64_t>(array / int64_t(sizeof(float)) / run.cores, 1);
  return rate_on_cores(run, [=]() -> Piece {
    const auto x = std::make_shared<ThreadTensors>(Shape{elements}, arrays_of(pass));
    return [=] {
      run_pass(pass, x->at);
      return double(arrays_of(pass)) * double(elements) * sizeof(float);
    };
  });
}

Spread first_touch_rate(int64_t bytes, const CoreRun& run) {
  const int64_t page = sysconf(_SC_PAGESIZE), part = std::max(bytes / run.cores, page);
  return rate_on_cores(run, [=]() -> Piece {
    return [=] {
      void* fresh =
          mmap(nullptr, size_t(part), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fresh == MAP_FAILED) throw std::bad_alloc();
      for (int64_t at = 0; at < part; at += page) static_cast<volatile char*>(fresh)[at] = 1;
      munmap(fresh, size_t(part));
      return double(part);
    };
  });
}

Spread spinning_latency(int samples, int rounds) { return latency<SpinningTurn>(samples, rounds); }
Spread sleeping_latency(int samples, int rounds) { return latency<SleepingTurn>(samples, rounds); }

// From /sys, because sysconf() may count a shared cache once for each core. index2 is the L2 cache.
int64_t cache_bytes(int level) {
  int64_t kib = 0;
  std::ifstream(str("/sys/devices/system/cpu/cpu0/cache/index", level, "/size")) >> kib;  // "1024K"
  const int64_t other = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
  return kib > 0 ? kib * 1024 : std::max<int64_t>(0, other);
}

}  // namespace zl::cli
