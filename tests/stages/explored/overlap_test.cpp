// Overlap under many schedules: results, bytes and calls are those of a training without overlap.
//
// A failure prints the line that replays it. ZEROLAB_SCHEDULE="zero3 2 pct 4711" in the environment
// runs that schedule only; ZEROLAB_NIGHTLY=1 runs more seeds.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>

#include "tests/stages/explored/explored_training.h"

using namespace zl;
using namespace zl::test;

namespace {

// [n] seeds of PCT per stage: three for each of the 11 cases.
const uint64_t kSeeds = std::getenv("ZEROLAB_NIGHTLY") ? 1100 : 33;

// Schedules of a stage: the two extremes of every case, and PCT seeds, in turn over the cases.
std::vector<ExploredRun> runs_of(StageKind stage) {
  std::vector<ExploredRun> runs;
  const size_t cases = explored_cases().size();
  for (size_t number = 0; number < cases; ++number)
    for (const char* kind : {"eager", "lazy"}) runs.push_back({stage, number, {kind}});
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    runs.push_back({stage, size_t(seed) % cases, {"pct", seed}});
  return runs;
}

std::vector<ExploredRun> wanted_runs() {
  if (const char* one = std::getenv("ZEROLAB_SCHEDULE")) return {parse_run(one)};
  std::vector<ExploredRun> all;
  for (const StageKind stage : kStages)
    for (const ExploredRun& run : runs_of(stage)) all.push_back(run);
  return all;
}

}  // namespace

TEST_CASE("overlap changes no bit, byte or call in any explored schedule",
          "[stages][explored][seeds]") {
  for (const ExploredRun& run : wanted_runs()) {
    const std::string wrong = wrong_with(run);
    INFO(wrong << "\nZEROLAB_SCHEDULE=\"" << run.text() << "\" unit_tests \"overlap changes*\"");
    REQUIRE(wrong.empty());
  }
}

namespace {

const ExploredCase kOneBlock{.layers = 1,
                             .overlap = {.overlap_comm = true, .prefetch_bucket_size = 1}};

// Runs all schedules of the search; the number of them.
int64_t search_all(ExploredTraining& training, DepthFirst search) {
  int64_t schedules = 0;
  do {
    ++schedules;
    INFO("schedule " << schedules);
    REQUIRE(training.wrong_with(search) == "");
  } while (search.advance());
  return schedules;
}

}  // namespace

TEST_CASE("one step of two ranks and one block is right whenever the network carries out its calls",
          "[stages][explored][seeds]") {
  for (const StageKind stage : kStages) {
    ExploredCase c = kOneBlock;
    c.steps = 1;
    ExploredTraining training(c, stage);
    CHECK(search_all(training, DepthFirst()) > 10);
  }
}

// Stage 3 waits for most calls soon, so that six in a row have few schedules.
TEST_CASE("two steps are right whenever three calls in a row are carried out",
          "[stages][explored][seeds]") {
  for (const StageKind stage : kStages) {
    ExploredTraining training(kOneBlock, stage);
    Eager eager;
    REQUIRE(training.wrong_with(eager) == "");
    const int calls = training.calls(), in_a_row = stage == StageKind::zero3 ? 6 : 3;
    int64_t schedules = 0;
    for (int first = 0; first + in_a_row <= calls; first += 2)
      schedules += search_all(training, DepthFirst(first, in_a_row));
    CHECK(schedules > calls);
  }
}

TEST_CASE("an exception with work in flight frees all memory and ends all ranks",
          "[stages][explored][seeds]") {
  const bool allocation = GENERATE(false, true);
  // By day one in four of these moments, another one in each stage.
  const int64_t apart = std::getenv("ZEROLAB_NIGHTLY") ? 1 : 4;
  const ExploredCase c{.overlap = {.overlap_comm = true, .prefetch_bucket_size = 1}};
  for (const StageKind stage : kStages)
    for (const std::string kind : {"eager", "lazy"}) {
      if (allocation && kind == "eager") continue;  // lazy has more in flight
      int64_t failures = 0;
      for (;; ++failures) {  // of both ranks in turn
        const Failure failure{.rank = int(failures % 2),
                              .at = failures / 2 * apart + stage_number(stage) % apart,
                              .allocation = allocation};
        const auto schedule = make_schedule({kind}, c.ranks, 0);
        const auto wrong = wrong_after(failure, c, stage, *schedule);
        INFO(name(stage) << ", " << kind << ", rank " << failure.rank << " at "
                         << (allocation ? "allocation " : "event ") << failure.at);
        if (!wrong) break;
        REQUIRE(*wrong == "");
      }
      CHECK(failures > 20 / apart);
    }
}
