// Groups of ranks that are processes, one of which dies. All else of groups:
// tests/nccl/split_test.cpp.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

#include "tests/dist/split_calls.h"
#include "tests/nccl/processes/process_ranks.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

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
