#include "tutorials/zerolab/run/machine.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <tuple>

#include "dist/nccl/api.h"
#include "tensor/cpu/cpu_backend.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zl::cli {
namespace {

// The value after `key` in a file of lines "key: value", or "".
std::string value_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find_first_not_of(" \t:", key.size());
        line.starts_with(key) && at != std::string::npos)
      return line.substr(at);
  return "";
}

int64_t number_in(const char* file, const std::string& key) {
  int64_t value = 0;
  std::istringstream(value_in(file, key)) >> value;
  return value;
}

}  // namespace

std::string missing_instructions() {
  std::string missing;
#if defined(__x86_64__)
  const std::string needs = cpu_architecture();
  const bool v4 = needs == "x86-64-v4", v3 = v4 || needs == "x86-64-v3";
  unsigned a = 0, b = 0, c = 0, d = 0;
  __get_cpuid(1, &a, &b, &c, &d);  // clang 14's __builtin_cpu_supports does not know F16C
  const std::tuple<bool, int, const char*> all[] = {
      {v3, __builtin_cpu_supports("avx2"), "AVX2"},
      {v3, __builtin_cpu_supports("fma"), "FMA"},
      {v3, __builtin_cpu_supports("bmi2"), "BMI2"},
      {v3, c >> 29 & 1, "F16C"},
      {v4,
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl"),
       "AVX-512"}};
  for (const auto& [needed, here, name] : all)
    if (needed && !here) missing += (missing.empty() ? "" : ", ") + std::string(name);
#endif
  return missing;
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

}  // namespace zl::cli
