// diagnosis: it uses zl::peak_full_parameters
// check: refused
// Declares the library's closed formula without its header.
#include <limits>

#include "tutorials/exercises/09_prefetch/prefetch.h"

namespace zl {

struct Overlap {
  bool overlap_comm = false;
  int64_t prefetch_bucket_size = 0;
  int64_t max_live_parameters = std::numeric_limits<int64_t>::max();
  int64_t max_reuse_distance = 0;
};
int64_t peak_full_parameters(const std::vector<int64_t>& units, const Overlap& overlap);

namespace exercises {

std::vector<ScheduleEntry> prefetch_schedule(const PrefetchTask&) { return {}; }

int64_t predicted_peak(const PrefetchTask& task) {
  std::vector<int64_t> units;
  for (const int u : task.forward) units.push_back(task.full[size_t(u)]);
  Overlap overlap;
  overlap.prefetch_bucket_size = task.prefetch_bucket_size;
  overlap.max_live_parameters = task.max_live_parameters;
  return peak_full_parameters(units, overlap);
}

}  // namespace exercises
}  // namespace zl
