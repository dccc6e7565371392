// Groups of ranks that are processes: bits, failures, and calls that are compared among members.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <thread>

#include "tests/dist/split_calls.h"
#include "tests/nccl/processes/process_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

// Four ranks on two nodes.
std::vector<ProcessEnd> of_groups(const std::function<void(Communicator& comm, Communicator& intra,
                                                           Communicator& inter, Rank& rank)>& body,
                                  std::chrono::milliseconds timeout = 20s) {
  return run_as_processes({.size = 4, .timeout = timeout}, [=](Communicator& comm,
                                                               const Processes::Say&) {
    Rank rank(comm);
    const auto intra = comm.split({0, 0, 1, 1}, "intra"), inter = comm.split({0, 1, 0, 1}, "inter");
    body(comm, *intra, *inter, rank);
    comm.barrier(kName).wait();
  });
}

}  // namespace

TEST_CASE("every collective of a group of processes has the values of its members only", "[nccl]") {
  require_forks();
  const Colors colors = kColors[size_t(GENERATE(0, 1, 2, 3, 4, 5))];
  const bool only_on_timeout = GENERATE(false, true);
  CAPTURE(colors, only_on_timeout);
  const auto ends = run_as_processes({.size = int(colors.size())},
                                     [=](Communicator& comm, const Processes::Say& say) {
                                       Rank rank(comm);
                                       if (only_on_timeout) comm.compare_calls_only_on_timeout();
                                       const auto group = comm.split(colors, "intra");
                                       std::vector<int> members = members_of(colors, comm.rank());
                                       say(wrong_in_group(*group, rank, members));
                                       for (int& member : members)
                                         member = (member + 1) % (comm.size() + 1);
                                       if (wrong_in_group(*group, rank, members).empty())
                                         say("others' values are right");
                                       comm.barrier(kName).wait();
                                     });
  for (const ProcessEnd& end : ends) {
    CHECK(end.said == "");
    CHECK(end.code == kFine);
  }
}

TEST_CASE("a mismatch in a group of processes fails all of them", "[nccl]") {
  require_forks();
  const bool only_on_timeout = GENERATE(false, true);
  const auto run = [&](int64_t odd) {
    return of_groups(
        [=](Communicator& comm, Communicator& intra, Communicator&, Rank& rank) {
          if (only_on_timeout) comm.compare_calls_only_on_timeout();
          const Tensor t = rank.filled(comm.rank() == 3 ? odd : 8, 1);
          intra.all_reduce(t, Reduction::sum, kName).wait();
        },
        only_on_timeout ? 1000ms : 20'000ms);
  };
  for (const ProcessEnd& end : run(9)) {
    CHECK(end.code == kCommunication);
    CHECK_THAT(end.said, ContainsSubstring("rank 3 calls all_reduce 'h.1 gradient' of 9 f32 "
                                           "elements (call 1 of group 'intra', ranks 2 and 3)") ||
                             ContainsSubstring("rank 2 calls all_reduce"));
    CHECK_THAT(end.said, ContainsSubstring("of 8 f32 elements (call 1 of group 'intra', ranks 2 "
                                           "and 3)"));
  }
  for (const ProcessEnd& end : run(8)) CHECK(end.code == kFine);
}

TEST_CASE("a process that dies in one group ends those that are in another", "[nccl]") {
  require_forks();
  const auto ends =
      of_groups([](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
        const Tensor t = rank.filled(8, 1);
        if (comm.rank() == 2) ::kill(::getpid(), SIGKILL);
        (comm.rank() < 2 ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
        (comm.rank() < 2 ? inter : intra).all_reduce(t, Reduction::sum, kName).wait();
      });
  for (const int r : {0, 1, 3}) {
    CHECK(ends[size_t(r)].code == kCommunication);
    CHECK_THAT(ends[size_t(r)].said, ContainsSubstring("rank 2 has died"));
  }
}

TEST_CASE("a late process is named in the group that waits for it", "[nccl]") {
  require_forks();
  const auto ends = of_groups(
      [](Communicator& comm, Communicator& intra, Communicator&, Rank& rank) {
        const Tensor t = rank.filled(8, 1);
        if (comm.rank() < 2) std::this_thread::sleep_for(400ms);  // waits later
        if (comm.rank() == 2) std::this_thread::sleep_for(3s);
        if (comm.rank() > 1) intra.all_reduce(t, Reduction::sum, kName).wait();
      },
      1000ms);
  for (const ProcessEnd& end : ends)
    CHECK_THAT(end.said,
               ContainsSubstring("only 1 of 2 ranks came to all_reduce 'h.1 gradient' of 8 f32 "
                                 "elements (call 1 of group 'intra', ranks 2 and 3) within 1.0 s"));
}

TEST_CASE("groups of processes that wait for each other in a circle fail at once", "[nccl]") {
  require_forks();
  const auto run = [](bool crosswise) {
    return of_groups([=](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
      const Tensor t = rank.filled(8, 1);
      const bool swap = crosswise && (comm.rank() == 1 || comm.rank() == 2);
      (swap ? inter : intra).all_reduce(t, Reduction::sum, kName).wait();
      (swap ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
    });
  };
  for (const ProcessEnd& end : run(true))
    CHECK_THAT(end.said, ContainsSubstring("(call 1 of group 'inter', ranks 1 and 3); neither can "
                                           "go on"));
  for (const ProcessEnd& end : run(false)) CHECK(end.code == kFine);
}
