#include "tutorials/zerolab/bench/process_cost.h"

#include <malloc.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

namespace zl::cli {
namespace {

// [B] A line such as "VmHWM:   12345 kB"; 0 if there is none.
int64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (int64_t kib = 0; word == key + ":" && in >> kib) return kib * 1024;
  return 0;
}

}  // namespace

int64_t minor_page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

PeakResident::PeakResident() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream reset("/proc/self/clear_refs");  // "5": VmHWM begins again, proc(5)
  reset << "5" << std::flush;
  before_ = status_bytes("VmRSS");
  anew_ = reset.good() && before_ > 0;
}

std::optional<int64_t> PeakResident::peak() const {
  return anew_ ? std::optional(status_bytes("VmHWM")) : std::nullopt;
}

}  // namespace zl::cli
