// Groups of ranks that are threads, each with a separate NCCL communicator in the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/dist/split_calls.h"
#include "tests/nccl/fake/fake_ranks.h"
#include "tests/pairwise.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;

TEST_CASE("calls of groups over NCCL have the values of their members only, several in flight too",
          "[nccl]") {
  SettingsRow pick = any_pair({6, 2, 2, 2});
  const Colors colors = kColors[size_t(pick.next({0, 1, 2, 3, 4, 5}))];
  const bool lagging = pick.next({false, true}), ordered = pick.next({false, true}),
             only_on_timeout = pick.next({false, true});
  CAPTURE(colors, lagging, ordered, only_on_timeout);
  const int ranks = int(colors.size());
  std::vector<std::string> wrong(colors.size(), "not said");
  const auto ended = fake_outcome(ranks, {.lagging = lagging, .ordered = ordered}, [&](Rank& rank) {
    if (only_on_timeout) rank.comm.compare_calls_only_on_timeout();
    wrong[size_t(rank.comm.rank())] =
        wrong_in_split(rank.comm, rank, colors, false) + wrong_in_flight(rank.comm, rank, 50);
  });
  CHECK(wrong == std::vector<std::string>(colors.size()));
  CHECK(ended.thrown + ended.misuse == "");
  CHECK((ended.destroyed == 4 * ranks && ended.aborted == 0));  // all ranks, and three groups
}

TEST_CASE("a failure in one group over NCCL fails all ranks, and says in which", "[nccl]") {
  const bool lagging = GENERATE(false, true), only_on_timeout = GENERATE(false, true);
  for (const GroupCase& one : group_cases(false)) {
    const std::string title = one.title;
    if (only_on_timeout && title != "a mismatch" && title != "no mismatch") continue;
    if (lagging && one.late) continue;
    const auto timeout = one.late ? kLate / 3 : only_on_timeout ? 1000ms : 20'000ms;
    const auto ended = fake_outcome(4, {.lagging = lagging, .timeout = timeout}, [&](Rank& rank) {
      if (only_on_timeout) rank.comm.compare_calls_only_on_timeout();
      run_group_case(one, rank);
    });
    CAPTURE(lagging, only_on_timeout, title, ended.errors);
    for (const std::string& part : one.says) CHECK(ended.all_say(part));
    CHECK((ended.thrown == "") == one.says.empty());
    CHECK(ended.misuse == "");
  }
}

TEST_CASE("NCCL that fails in one group ends all ranks with that cause", "[nccl]") {
  const bool lagging = GENERATE(false, true), fails = GENERATE(true, false);
  const GroupCase one{"", [](Communicator& comm, Communicator& intra, Communicator&, Rank& rank) {
                        const Tensor t = rank.filled(8, 1);
                        comm.all_reduce(t, Reduction::sum, kName).wait();
                        intra.barrier(kName).wait();
                        if (comm.rank() < 2) intra.all_gather(t, kName).wait();
                        comm.all_gather(t, kName).wait();
                      }};
  FakeOptions how{.lagging = lagging};
  if (fails) how.faults = {{"ncclAllGather", K::fails, 1, 2}};  // the first ends the all_reduce
  const auto ended = fake_outcome(4, how, [&](Rank& rank) { run_group_case(one, rank); });
  CHECK(ended.all_say(fails ? "rank 1 in all_gather 'h.1 gradient' of 8 f32 elements (call 2 of "
                              "group 'intra', ranks 0 and 1)"
                            : ""));
  CHECK((ended.thrown == "") == !fails);
  CHECK(ended.misuse == "");
  CHECK(ended.aborted == (fails ? 12 : 0));
}

TEST_CASE("NCCL: a transfer of a group that stalls passes the deadline", "[nccl]") {
  require_emulator();
  const FakeOptions how{
      .faults = {{"ncclAllGather", K::stalls, 1, 1}}, .emulated = true, .timeout = 300ms};
  const auto ended = fake_outcome(3, how, [&](Rank& rank) {
    const auto group = rank.comm.split({0, 1, 1}, "intra");
    const Tensor t = rank.filled(64, 1);
    if (rank.comm.rank() > 0) group->all_gather(t, kName).wait();
    if (rank.comm.rank() > 0) (void)contents<float>(t);  // blocks until the watchdog aborts
    rank.comm.barrier(kName).wait();
  });
  CHECK(ended.all_say("of group 'intra', ranks 1 and 2)"));
  CHECK(ended.misuse == "");
}
