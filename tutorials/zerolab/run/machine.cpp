#include "tutorials/zerolab/run/machine.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "dist/nccl/api.h"
#include "tensor/cpu/cpu_backend.h"

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

bool has_instructions() {
#if defined(__x86_64__) && !defined(__clang__)  // clang 14 does not know these names
  const std::string needs = cpu_architecture();
  if (needs == "x86-64-v3") return __builtin_cpu_supports("x86-64-v3");
  if (needs == "x86-64-v4") return __builtin_cpu_supports("x86-64-v4");
#endif
  return true;
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
