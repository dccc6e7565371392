// The tasks of each check of exercise 09, which follow from the seed.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tutorials/exercises/09_prefetch/prefetch.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::prefetch_checks {

// Units of an odd number of blocks of 16 elements per rank, without a bucket, and with room for
// all.
inline PrefetchTask task_of(Draw& draw, int64_t blocks, int64_t largest) {
  PrefetchTask task;
  const int64_t ranks = 2 * draw.between(1, 3) + 1;
  task.forward = {0};
  for (int64_t b = 0; b <= blocks; ++b) {
    task.full.push_back(16 * ranks * (2 * draw.between(0, largest) + 1));
    if (b > 0) task.forward.insert(task.forward.begin() + draw.between(1, b), int(b));
  }
  task.backward = task.forward;
  std::reverse(task.backward.begin() + 1, task.backward.end());
  task.max_live_parameters = 1'000'000'000'000;
  return task;
}

// [n] Of `count` units in the order of the forward pass, from position `first`.
inline int64_t run_of(const PrefetchTask& task, int64_t first, int64_t count) {
  int64_t n = 0;
  for (int64_t i = first; i < first + count; ++i) n += task.full[size_t(task.forward[size_t(i)])];
  return n;
}

// Whether the check asks for the peaks; the others ask for the schedules.
inline bool asks_for_peaks(const std::string& check) { return check.starts_with("peak"); }

inline std::vector<PrefetchTask> prefetch_tasks(const std::string& check,
                                                const CheckOptions& options) {
  Draw draw(check, options);
  std::vector<PrefetchTask> tasks;
  // `set` changes the i-th task of `count`; `few`, `many`: blocks.
  const auto add = [&](int count, int64_t few, int64_t many, int64_t largest,
                       const std::function<void(PrefetchTask&, int64_t i)>& set) {
    for (int i = 0; i < count; ++i) {
      tasks.push_back(task_of(draw, draw.between(few, many), largest));
      set(tasks.back(), i);
    }
  };
  const auto all_of = [](const PrefetchTask& t) { return run_of(t, 0, int64_t(t.full.size())); };
  const auto smallest = [](const PrefetchTask& t) {
    return *std::min_element(t.full.begin() + 1, t.full.end());
  };

  if (check == "no prefetch") add(3, 4, 7, 9, [](PrefetchTask&, int64_t) {});
  // Buckets that one unit fills: of any size, exactly, and where all units but root are equal.
  if (check == "one unit ahead")
    add(3, 4, 7, 9, [&](PrefetchTask& t, int64_t i) {
      if (i == 2) std::fill(t.full.begin() + 1, t.full.end(), t.full[0] + 16 * draw.between(1, 9));
      t.prefetch_bucket_size = i == 0 ? 1 : smallest(t);
    });
  // Buckets at the border: two neighbours exactly, one element less and one more; and three.
  if (check == "several units ahead")
    add(4, 7, 9, 9, [&](PrefetchTask& t, int64_t i) {
      t.prefetch_bucket_size =
          i == 3 ? run_of(t, 1, 3) + draw.between(1, 15) : run_of(t, draw.between(2, 4), 2) + i - 1;
    });
  // Limits at the border, for root and three to one neighbours, with a bucket for all units.
  if (check == "max_live_parameters")
    add(9, 7, 9, 9, [&](PrefetchTask& t, int64_t i) {
      t.prefetch_bucket_size = all_of(t);
      t.max_live_parameters = t.full[0] + run_of(t, draw.between(2, 3), 3 - i % 3) + i / 3 - 1;
    });
  // One block is larger than all others together, which fit with root.
  if (check == "a unit that does not fit")
    add(3, 7, 9, 4, [&](PrefetchTask& t, int64_t) {
      const int64_t others = all_of(t) - t.full[0];
      t.full[size_t(t.forward[size_t(draw.between(4, 5))])] = others;
      t.prefetch_bucket_size = 3 * others;
      t.max_live_parameters = t.full[0] + others - 1;
    });
  // Even root or a single block does not fit.
  if (check == "less than one unit")
    add(3, 4, 6, 9, [&](PrefetchTask& t, int64_t i) {
      t.prefetch_bucket_size = run_of(t, 1, 2);
      t.max_live_parameters = i == 0 ? 0 : i == 1 ? t.full[0] - 1 : t.full[0] + smallest(t);
    });
  if (asks_for_peaks(check) || check == "other models")
    add(40, 1, 12, asks_for_peaks(check) ? 99'999 : 9, [&](PrefetchTask& t, int64_t i) {
      t.prefetch_bucket_size = draw.between(0, 4) == 0 ? 0 : draw.between(1, all_of(t));
      if (check == "peak" || (check == "other models" && i % 3 == 0)) return;
      t.max_live_parameters = draw.between(t.full[0], all_of(t));
    });
  return tasks;
}

}  // namespace zl::exercises::prefetch_checks
