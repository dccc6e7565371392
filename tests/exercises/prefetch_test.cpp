// The judge of exercise 09: what it expects is a run of the library and a closed formula.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tutorials/exercises/09_prefetch/schedules.h"

namespace zl::exercises::prefetch_checks {
namespace {

constexpr const char* kChecks[] = {kNone,  kOne,  kBucket,    kLimit, kMisfit,
                                   kTight, kPeak, kPeakLimit, kAll};

}  // namespace

TEST_CASE("the rules of exercise 09 are what the library's schedule does", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks)
      for (const PrefetchTask& task : prefetch_tasks(check, seed)) {
        const LibraryRun library = library_run(task);
        CAPTURE(check, seed, task.full, task.forward, task.prefetch_bucket_size,
                task.max_live_parameters);
        REQUIRE(same(simulated(task), library.entries));
        REQUIRE(library.peak == right_peak(task));
        REQUIRE(peak_of(task, library.entries) == library.peak);
      }
}

// The twin, and what the checks find: they tell each mistake from the rules, for every student.
TEST_CASE("the checks of exercise 09 find each mistake that has a diagnosis", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const Mistake& mistake : kMistakes) {
      CAPTURE(seed, mistake.meaning);
      CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
        return !asks_for_peaks(check) &&
               std::ranges::any_of(prefetch_tasks(check, seed), [&](const PrefetchTask& task) {
                 return !same(simulated(task), simulated(task, mistake.rules));
               });
      }));
    }
}

// The table in task.md.
TEST_CASE("the task of exercise 09 shows the library's numbers", "[exercises]") {
  PrefetchTask task{.full = {32, 80, 48, 64},
                    .forward = {0, 1, 2, 3},
                    .backward = {0, 3, 2, 1},
                    .prefetch_bucket_size = 64,
                    .max_live_parameters = 12 * 16};
  Entries forward = library_run(task).entries;
  forward.resize(11);
  CHECK(same(forward, {{Action::unshard, 0},
                       {Action::unshard, 1},
                       {Action::run, 0},
                       {Action::unshard, 2},
                       {Action::run, 1},
                       {Action::reshard, 1},
                       {Action::unshard, 3},
                       {Action::run, 2},
                       {Action::reshard, 2},
                       {Action::run, 3},
                       {Action::reshard, 3}}));
  CHECK(right_peak(task) == 10 * 16);
  task.max_live_parameters = 14 * 16;
  CHECK(right_peak(task) == 14 * 16);
  task.prefetch_bucket_size = 0;
  CHECK(right_peak(task) == 7 * 16);
}

}  // namespace zl::exercises::prefetch_checks
