// The program of one mutant (mutants.cmake): looks for its fault in every stage, and says which
// schedule found it, and by what.
//
//   mutant_NAME schedules    succeeds if the eager, lazy or one of 200 PCT schedules finds a fault;
//                            prints also which one finds it without race checks
//   mutant_NAME exceptions   the same, of an exception with work in flight
//   mutant_NAME none         succeeds if none of them finds any
#include <cstdio>
#include <string>
#include <vector>

#include "tests/stages/explored/explored_training.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr uint64_t kSeeds = 200;

// A fault, and the schedule that found it; empty: none.
std::string by_schedules(bool check_races) {
  std::vector<ExploredRun> runs;
  const size_t cases = explored_cases().size();
  for (const char* kind : {"eager", "lazy"})
    for (const StageKind stage : kStages)
      for (size_t number = 0; number < cases; ++number) runs.push_back({stage, number, {kind}});
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    runs.push_back({kStages[seed / cases % 4], size_t(seed % cases), {"pct", seed}});
  for (const ExploredRun& run : runs)
    if (const std::string wrong = wrong_with(run, check_races); !wrong.empty())
      return run.text() + " finds " + wrong;
  return "";
}

std::string by_exceptions() {
  const ExploredCase c = exception_case();
  for (const char* kind : {"eager", "lazy"})
    for (const StageKind stage : kStages)
      for (int64_t event = 0;; ++event) {
        const auto schedule = make_schedule({kind}, c.ranks, 0);
        const auto wrong = wrong_after({.at = event}, c, stage, *schedule);
        if (!wrong) break;
        if (!wrong->empty())
          return std::string(name(stage)) + " " + kind + ", an exception at event " +
                 std::to_string(event) + " finds " + *wrong;
      }
  return "";
}

}  // namespace

int main(int arguments, char** argument) {
  const std::string check = arguments > 1 ? argument[1] : "none";
  std::string found;
  if (check != "exceptions") found = by_schedules(true);
  if (check != "schedules" && found.empty()) found = by_exceptions();
  std::printf("%s\n", found.empty() ? "no schedule finds a fault" : found.c_str());
  if (check == "schedules") {
    const std::string result = by_schedules(false);
    std::printf("without race checks: %s\n", result.empty() ? "not found" : result.c_str());
  }
  return found.empty() == (check == "none") ? 0 : 1;
}
