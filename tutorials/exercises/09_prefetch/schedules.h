// The schedule that the library makes of a task, and those of typical mistakes.
#pragma once

#include <vector>

#include "tutorials/exercises/09_prefetch/prefetch_case.h"

namespace zl::exercises::prefetch_checks {

using Entries = std::vector<ScheduleEntry>;

bool same(const Entries& a, const Entries& b);

// A run of FullParameters (stages/schedule/) on units of these sizes, and the peak of full
// parameters [n] that the rank's ledger has counted.
struct LibraryRun {
  Entries entries;
  int64_t peak = 0;
};
LibraryRun library_run(const PrefetchTask& task);
// The closed formula of stages/predict/peaks.h.
int64_t right_peak(const PrefetchTask& task);

// A schedule that breaks some of the rules in prefetch.h.
struct Rules {
  // Which units are visited.
  bool none = false, forward_only = false, forward_order = false, by_number = false,
       into_backward = false;
  // When the prefetch ends by prefetch_bucket_size.
  bool counts_new_only = false, within_bucket = false, reaches_bucket = false,
       counts_current = false;
  // What max_live_parameters limits.
  bool ignores_limit = false, skips_misfit = false, below_limit = false, exceeds_limit = false,
       limits_use = false;
  bool without_root = false, without_in_flight = false, without_current = false,
       counts_resharded = false;
  // When.
  bool prefetch_first = false, prefetch_after_run = false;
  bool reshards_root = false, keeps_root = false, keeps_blocks = false, keeps_last = false,
       reshards_late = false;
};

struct Mistake {
  Rules rules;
  const char* meaning;
};
extern const std::vector<Mistake> kMistakes;

Entries simulated(const PrefetchTask& task, const Rules& rules = {});
// [n] The most full parameters at one time.
int64_t peak_of(const PrefetchTask& task, const Entries& entries);

}  // namespace zl::exercises::prefetch_checks
