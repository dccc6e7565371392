// The tasks of each check of exercise 09, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/09_prefetch/prefetch.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::prefetch_checks {

// Whether the check asks for the peaks; the others ask for the schedules.
bool asks_for_peaks(const std::string& check);

std::vector<PrefetchTask> prefetch_tasks(const std::string& check, uint64_t seed);

}  // namespace zl::exercises::prefetch_checks
