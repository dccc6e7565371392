// Groups of ranks that are processes: bits, failures, and calls that are compared among members.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

#include "tests/dist/split_calls.h"
#include "tests/nccl/processes/process_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("calls of groups of processes have the values of their members only", "[nccl]") {
  require_forks();
  const Colors colors = kColors[size_t(GENERATE(0, 1, 2, 3, 4, 5))];
  const bool only_on_timeout = GENERATE(false, true);
  CAPTURE(colors, only_on_timeout);
  const ProcessRanks run{.size = int(colors.size())};
  const auto ends = run_as_processes(run, [=](Communicator& comm, const Processes::Say& say) {
    Rank rank(comm);
    if (only_on_timeout) comm.compare_calls_only_on_timeout();
    say(wrong_in_split(comm, rank, colors, false) + wrong_in_flight(comm, rank, 50));
  });
  for (const ProcessEnd& end : ends) {
    CHECK(end.said == "");
    CHECK(end.code == kFine);
  }
}

TEST_CASE("a failure in one group of processes fails all of them, and says in which", "[nccl]") {
  require_forks();
  const bool only_on_timeout = GENERATE(false, true);
  for (const GroupCase& one : group_cases(false)) {
    if (only_on_timeout && std::string(one.title) != "a mismatch" &&
        std::string(one.title) != "no mismatch")
      continue;
    const std::chrono::milliseconds timeout = one.late          ? kLate / 3
                                              : only_on_timeout ? 1000ms
                                                                : 20'000ms;
    const auto ends = run_as_processes({.size = 4, .timeout = timeout},
                                       [&](Communicator& comm, const Processes::Say&) {
                                         Rank rank(comm);
                                         if (only_on_timeout) comm.compare_calls_only_on_timeout();
                                         run_group_case(one, rank);
                                       });
    for (const ProcessEnd& end : ends) {
      CAPTURE(only_on_timeout, one.title, describe(end));
      CHECK(end.code == (one.says.empty() ? kFine : kCommunication));
      for (const std::string& part : one.says) CHECK_THAT(end.said, ContainsSubstring(part));
    }
  }
}

TEST_CASE("a process that dies in one group ends those that are in another", "[nccl]") {
  require_forks();
  const GroupCase dies{
      "", [](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
        const Tensor t = rank.filled(8, 1);
        if (comm.rank() == 2) ::kill(::getpid(), SIGKILL);
        (comm.rank() < 2 ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
        (comm.rank() < 2 ? inter : intra).all_reduce(t, Reduction::sum, kName).wait();
      }};
  const auto ends = run_as_processes({.size = 4}, [&](Communicator& comm, const Processes::Say&) {
    Rank rank(comm);
    run_group_case(dies, rank);
  });
  for (const int r : {0, 1, 3}) {
    CHECK(ends[size_t(r)].code == kCommunication);
    CHECK_THAT(ends[size_t(r)].said, ContainsSubstring("rank 2 has died"));
  }
}
