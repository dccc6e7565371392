#include "tutorials/zerolab/bench/machine_rates.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"

namespace zl::cli {
namespace {

#if defined(__x86_64__)
constexpr int kChains =
    12;  // hide the latency of a multiply-add, 4 or 5 cycles, on cores that begin two in each
constexpr int64_t kRounds = 20'000;
const float kFactor = 0.999f,
            kTerm = 0.001f;  // x = 0.999 x + 0.001 stays where it is, away from zero and infinity

// In assembly, because this folder is not optimised in every build, while the kernels are: there a
// compiler keeps chains in memory, which makes them several times slower than what the kernels are
// compared with.
#define ON_CHAINS(does)                                                                     \
  does("0") does("1") does("2") does("3") does("4") does("5") does("6") does("7") does("8") \
      does("9") does("10") does("11")
#define BEGIN_256(chain) "vmovaps %%ymm13, %%ymm" chain "\n"
#define BEGIN_512(chain) "vmovaps %%zmm13, %%zmm" chain "\n"
#define STEP_256(chain) "vfmadd213ps %%ymm13, %%ymm12, %%ymm" chain "\n"
#define STEP_512(chain) "vfmadd213ps %%zmm13, %%zmm12, %%zmm" chain "\n"
#define LOOP(begin, step) \
  ON_CHAINS(begin) "1:\n" ON_CHAINS(step) "sub $1, %[rounds]\n jnz 1b\n vzeroupper\n"
#define CLOBBERS                                                                                 \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

__attribute__((target("avx2,fma"))) void multiply_add_256(int64_t rounds) {
  asm volatile(
      "vbroadcastss %[factor], %%ymm12\n vbroadcastss %[term], %%ymm13\n" LOOP(BEGIN_256, STEP_256)
      : [rounds] "+r"(rounds)
      : [factor] "m"(kFactor), [term] "m"(kTerm)
      : CLOBBERS);
}

__attribute__((target("avx512f"))) void multiply_add_512(int64_t rounds) {
  asm volatile(
      "vbroadcastss %[factor], %%zmm12\n vbroadcastss %[term], %%zmm13\n" LOOP(BEGIN_512, STEP_512)
      : [rounds] "+r"(rounds)
      : [factor] "m"(kFactor), [term] "m"(kTerm)
      : CLOBBERS);
}
#undef LOOP
#undef ON_CHAINS
#undef BEGIN_256
#undef BEGIN_512
#undef STEP_256
#undef STEP_512
#undef CLOBBERS

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#define FOR_AVX2 __attribute__((target("avx2")))
#else
bool has_avx2() { return false; }
#define FOR_AVX2
#endif

// Loops that are compiled twice. Exclusive or, because a sum of floats may not be split among
// lanes.
[[gnu::always_inline]] inline void triad_loop(float* __restrict c, const float* __restrict a,
                                              const float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) c[i] = a[i] + 0.5f * b[i];
}
[[gnu::always_inline]] inline uint32_t read_loop(const float* a, int64_t n) {
  uint32_t all = 0;
  for (int64_t i = 0; i < n; ++i) all ^= std::bit_cast<uint32_t>(a[i]);
  return all;
}
FOR_AVX2 void triad_avx2(float* c, const float* a, const float* b, int64_t n) {
  triad_loop(c, a, b, n);
}
FOR_AVX2 uint32_t read_avx2(const float* a, int64_t n) { return read_loop(a, n); }

// Arrays of one thread, written by it first.
struct Arrays {
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* block) const { ::operator delete(block, kAlignment); }
  };
  Arrays(int64_t n, int count) : n(n) {
    for (int i = 0; i < count; ++i) {
      at[i].reset(static_cast<float*>(::operator new(size_t(n) * sizeof(float), kAlignment)));
      std::fill_n(at[i].get(), n, 1.0f);
    }
  }
  int64_t n;  // elements of each
  std::unique_ptr<float, Free> at[3];
};

double stream_once(MemoryPass stream, const Arrays& x) {
  float *a = x.at[0].get(), *b = x.at[1].get(), *c = x.at[2].get();
  const double bytes = double(x.n) * sizeof(float);
  [[maybe_unused]] volatile uint32_t keep = 0;
  switch (stream) {
    case MemoryPass::copy: std::memcpy(b, a, size_t(x.n) * sizeof(float)); return 2 * bytes;
    case MemoryPass::triad:
      has_avx2() ? triad_avx2(c, a, b, x.n) : triad_loop(c, a, b, x.n);
      return 3 * bytes;
    case MemoryPass::read: keep = has_avx2() ? read_avx2(a, x.n) : read_loop(a, x.n); return bytes;
  }
  return 0;
}

}  // namespace

const char* name(VectorWidth width) { return width == VectorWidth::bits_256 ? "AVX2" : "AVX-512"; }

bool can_multiply_add([[maybe_unused]] VectorWidth width) {
#if defined(__x86_64__)
  return width == VectorWidth::bits_256 ? has_avx2() : bool(__builtin_cpu_supports("avx512f"));
#else
  return false;
#endif
}

Spread multiply_add_rate([[maybe_unused]] VectorWidth width, const CoreRun& run) {
  return rate_on_cores(run, [=](int) -> Piece {
#if defined(__x86_64__)
    if (width == VectorWidth::bits_256)
      return [] { return multiply_add_256(kRounds), 2.0 * 8 * kChains * kRounds; };
    return [] { return multiply_add_512(kRounds), 2.0 * 16 * kChains * kRounds; };
#else
    return [] { return 0.0; };
#endif
  });
}

double multiply_add_peak() {
  double peak = 0;
  for (const VectorWidth width : {VectorWidth::bits_256, VectorWidth::bits_512})
    if (can_multiply_add(width))
      peak = std::max(peak, multiply_add_rate(width, {.samples = 25, .seconds = 1e-3}).most);
  return peak;
}

Spread product_rate(int64_t n, const CoreRun& run) {
  return rate_on_cores(run, [=](int) -> Piece {
    struct Place {
      explicit Place(int64_t n) : a(zeros(n)), b(zeros(n)), out(zeros(n)) {}
      Tensor zeros(int64_t n) { return Tensor::zeros(memory, MemoryUse::workspace, {n, n}); }
      EventStream events{0, 16};
      Memory memory{{DeviceKind::cpu}, cpu_backend(), events};
      Tensor a, b, out;  // after their memory, so that they go before it
    };
    const auto place = std::make_shared<Place>(n);
    return [=] {
      kernel::matmul(place->a, Transpose::no, place->b, Transpose::no, place->out);
      return 2.0 * double(n) * double(n) * double(n);
    };
  });
}

int arrays_of(MemoryPass stream) {
  return stream == MemoryPass::copy ? 2 : stream == MemoryPass::triad ? 3 : 1;
}

const char* name(MemoryPass stream) {
  return stream == MemoryPass::copy ? "copy" : stream == MemoryPass::triad ? "triad" : "read";
}

Spread stream_rate(MemoryPass stream, int64_t array, const CoreRun& run) {
  return rate_on_cores(run, [=](int) -> Piece {
    const auto arrays = std::make_shared<Arrays>(
        std::max<int64_t>(array / int64_t(sizeof(float)) / run.cores, 1), arrays_of(stream));
    return [=] { return stream_once(stream, *arrays); };
  });
}

Spread first_touch_rate(int64_t bytes, const CoreRun& run) {
  return rate_on_cores(run, [=](int) -> Piece {
    const int64_t mine = std::max(bytes / run.cores, page_bytes());
    return [mine, page = page_bytes()] {
      void* fresh =
          mmap(nullptr, size_t(mine), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fresh == MAP_FAILED) throw std::bad_alloc();
      for (int64_t at = 0; at < mine; at += page) static_cast<volatile char*>(fresh)[at] = 1;
      munmap(fresh, size_t(mine));
      return double(mine);
    };
  });
}

// The system knows which cores share a cache; sysconf() may count it once for each of them.
int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = str("/sys/devices/system/cpu/cpu0/cache/index", index, "/");
    int its_level = 0;
    int64_t kib = 0;
    std::string type;
    std::ifstream(folder + "level") >> its_level;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> kib;  // "1024K"
    if (its_level == level && type != "Instruction") return kib * 1024;
  }
  return std::max<int64_t>(0, sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE));
}

int64_t page_bytes() { return sysconf(_SC_PAGESIZE); }

std::string huge_pages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; in >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return "";
}

}  // namespace zl::cli
