// An exception while calls are in flight: every rank returns and frees everything.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "tests/stages/explored/explored_training.h"

using namespace zl;
using namespace zl::test;

TEST_CASE("an exception with work in flight frees all memory and ends all ranks",
          "[stages][explored][seeds]") {
  const bool allocation = GENERATE(false, true);
  const ExploredCase c = exception_case();
  for (const StageKind stage : kStages)
    for (const std::string kind : {"eager", "lazy"}) {
      if (allocation && kind == "eager") continue;  // lazy has more in flight
      int64_t failures = 0;
      for (;; ++failures) {  // of both ranks in turn
        const Failure failure{
            .rank = int(failures % 2), .at = failures / 2, .allocation = allocation};
        const auto schedule = make_schedule({kind}, c.ranks, 0);
        const auto wrong = wrong_after(failure, c, stage, *schedule);
        INFO(name(stage) << ", " << kind << ", rank " << failure.rank << " at "
                         << (allocation ? "allocation " : "event ") << failure.at);
        if (!wrong) break;
        REQUIRE(*wrong == "");
      }
      CHECK(failures > 20);
    }
}
