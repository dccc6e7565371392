// The tasks of each check of exercise 09, which follow from the seed.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tutorials/exercises/09_prefetch/prefetch.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::prefetch_checks {

// Whether the check asks for the peaks; the others ask for the schedules.
inline bool asks_for_peaks(const CheckOptions& options) {
  return options.check.starts_with("peak");
}

// Units of an odd number of blocks of 16 elements per rank: small numbers, so that sums of some are
// equal, or for peaks large ones, so that none are.
inline std::vector<PrefetchTask> prefetch_tasks(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  std::vector<PrefetchTask> tasks(60);
  for (PrefetchTask& t : tasks) {
    const int64_t block = 16 * (2 * draw.between(1, 3) + 1);
    t.forward = {0};
    for (int64_t b = 0, last = draw.between(4, 9); b <= last; ++b) {
      t.full.push_back(block * (2 * draw.between(0, asks_for_peaks(options) ? 99'999 : 9) + 1));
      if (b > 0) t.forward.insert(t.forward.begin() + draw.between(1, b), int(b));
    }
    t.backward = t.forward;
    std::reverse(t.backward.begin() + 1, t.backward.end());
    // [n] Of the units from position `first` of the forward pass on.
    const auto run_of = [&](int64_t first, int64_t count) {
      int64_t n = 0;
      for (; count > 0; --count) n += t.full[size_t(t.forward[size_t(first++)])];
      return n;
    };
    const int64_t all = run_of(0, std::ssize(t.full)),
                  smallest = *std::min_element(t.full.begin() + 1, t.full.end());
    // Buckets at the border: what one unit or some neighbours fill, one element less, and one more.
    t.prefetch_bucket_size =
        is("no prefetch") ? 0
        : is("one unit ahead")
            ? smallest - draw.between(0, 1)
            : run_of(draw.between(1, 2), draw.between(2, 3)) + draw.between(-1, 1);
    t.max_live_parameters = 1'000'000'000'000;
    // Limits at the border, for root and some neighbours; or even root or a block does not fit.
    if (is("max_live_parameters")) {
      if (draw.between(0, 1) == 1) t.prefetch_bucket_size = all;
      t.max_live_parameters =
          draw.between(0, 9) == 0
              ? draw.between(0, t.full[0] + smallest)
              : t.full[0] + run_of(draw.between(1, 2), draw.between(1, 3)) + draw.between(-1, 1);
    }
    if (is("peak under the limit")) t.max_live_parameters = draw.between(t.full[0], all);
  }
  return tasks;
}

}  // namespace zl::exercises::prefetch_checks
