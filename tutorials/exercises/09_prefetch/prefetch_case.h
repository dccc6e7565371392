// The tasks of each check of exercise 09, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/09_prefetch/prefetch.h"
#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises::prefetch_checks {

inline constexpr char kNone[] = "no prefetch", kOne[] = "one unit ahead",
                      kBucket[] = "several units ahead", kLimit[] = "max_live_parameters",
                      kMisfit[] = "a unit that does not fit", kTight[] = "less than one unit",
                      kPeak[] = "peak", kPeakLimit[] = "peak under the limit",
                      kAll[] = "other models";

// Whether the check asks for the peaks; the others ask for the schedules.
bool asks_for_peaks(const std::string& check);

std::vector<PrefetchTask> prefetch_tasks(const std::string& check, uint64_t seed);

}  // namespace zl::exercises::prefetch_checks
