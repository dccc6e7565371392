#include "tutorials/zerolab/machine.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <vector>

#include "dist/nccl_errors.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace zl::cli {
namespace {

constexpr double kMeasure = 0.05;  // [s] for each measurement

// The shortest of as many runs as fit into the time.  [s]
double shortest(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double best = 1e9, total = 0;
  while (total < kMeasure) {
    const auto start = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    total = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return best;
}

// The value after "key:" or "key" in a file of lines, or "".
std::string value_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t:", key.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

int64_t number_in(const char* file, const std::string& key) {
  int64_t value = 0;
  std::istringstream(value_in(file, key)) >> value;
  return value;
}

#if defined(__x86_64__)
constexpr int kChains = 10, kRounds = 20'000;

// Enough independent chains to hide the latency of a multiply-add on every core since 2013.
__attribute__((target("avx2,fma"))) float multiply_add_chains() {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  __m256 x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = _mm256_set1_ps(float(i));
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < kChains; ++i) x[i] = _mm256_fmadd_ps(x[i], a, b);
  for (int i = 1; i < kChains; ++i) x[0] = _mm256_add_ps(x[0], x[i]);
  return _mm256_cvtss_f32(x[0]);
}

bool has_f16c() {  // from cpuid, because clang 14's __builtin_cpu_supports does not know the name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
#endif

}  // namespace

std::string missing_instructions() {
#if defined(__x86_64__)
  const char* needs = cpu_architecture();
  const bool v4 = std::strcmp(needs, "x86-64-v4") == 0, v3 = v4 || std::strcmp(needs, "x86-64-v3") == 0;
  std::string missing;
  const auto need = [&](bool needed, bool there, const char* name) {
    if (needed && !there) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  need(v3, __builtin_cpu_supports("avx2"), "AVX2");
  need(v3, __builtin_cpu_supports("fma"), "FMA");
  need(v3, __builtin_cpu_supports("bmi2"), "BMI2");
  need(v3, has_f16c(), "F16C");
  need(v4, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"), "AVX-512");
  return missing;
#else
  return "";
#endif
}

std::string cpu_model() {
  const std::string model = value_in("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown" : model;
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return int(sysconf(_SC_NPROCESSORS_ONLN));
}

int64_t total_memory() {
  const int64_t machine = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const int64_t container = number_in("/sys/fs/cgroup/memory.max", "");  // "max" reads as 0
  return container > 0 ? std::min(machine, container) : machine;
}

int64_t available_memory() { return number_in("/proc/meminfo", "MemAvailable") * 1024; }

int64_t shared_memory() {
  struct statvfs mount = {};
  if (statvfs("/dev/shm", &mount) != 0) return 0;
  return int64_t(mount.f_blocks) * int64_t(mount.f_frsize);
}

std::string nccl_version() {
  const NcclApi* api = nccl_in_build().api;
  int code = 0;
  return api && api->get_version(&code) == NcclResult::success ? nccl_version_text(code) : "";
}

std::string compiler() {
#if defined(__clang__)
  return str("clang++ ", __clang_major__, ".", __clang_minor__, ".", __clang_patchlevel__);
#else
  return str("g++ ", __GNUC__, ".", __GNUC_MINOR__, ".", __GNUC_PATCHLEVEL__);
#endif
}

bool optimised_build() {
#if defined(__OPTIMIZE__)
  return true;
#else
  return false;
#endif
}

double multiply_add_rate() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  volatile float keep = 0;
  return 2.0 * 8 * kChains * kRounds / shortest([&] { keep = multiply_add_chains(); });
#else
  return 0;
#endif
}

double matmul_rate(int64_t n) {
  EventStream events(0, 16);
  Memory memory({DeviceKind::cpu}, cpu_backend(), events);
  const auto matrix = [&] { return Tensor::zeros(memory, MemoryUse::workspace, {n, n}); };
  const Tensor a = matrix(), b = matrix(), out = matrix();
  return 2.0 * double(n) * double(n) * double(n) / shortest([&] { kernel::matmul(a, Transpose::no, b, Transpose::no, out); });
}

double copy_rate() {
  const std::vector<char> from(64 << 20, 'x');
  std::vector<char> to(from.size());
  volatile char keep = 0;
  return 2.0 * double(from.size()) / shortest([&] {
           std::memcpy(to.data(), from.data(), from.size());
           keep = to[to.size() / 2];
         });
}

}  // namespace zl::cli
