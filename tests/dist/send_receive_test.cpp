// Two ranks exchange tensors; the others take no part.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "tests/dist/exchanges.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

RankOptions options(bool lane) { return lane ? lanes() : within(20s); }

}  // namespace

TEST_CASE("what two ranks exchange arrives in its order, however they wait for it", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  const bool lane = GENERATE(false, true);
  CAPTURE(ranks, lane);
  std::vector<std::string> wrong(size_t(ranks), "not said");
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        wrong[size_t(comm.rank())] = wrong_in_exchanges(rank);
      },
      options(lane));
  CHECK(wrong == std::vector<std::string>(size_t(ranks)));
}

TEST_CASE("a send and a receive that do not match are an error on all ranks", "[dist]") {
  const int kind = GENERATE(0, 1, 2);  // count, type, name
  const bool sender_first = GENERATE(true, false);
  CAPTURE(kind, sender_first);
  const Outcome result = outcome(3, [&](Communicator& comm) {
    Rank rank(comm);
    if ((comm.rank() == 0) != sender_first) std::this_thread::sleep_for(10ms);
    if (comm.rank() == 0) comm.send(rank.filled(8, 1), 1, {"x", Purpose::check}).wait();
    if (comm.rank() == 1)
      comm.receive(rank.empty(kind == 0 ? 9 : 8, kind == 1 ? Dtype::f16 : Dtype::f32), 0,
                   {kind == 2 ? "y" : "x", Purpose::check})
          .wait();
    if (comm.rank() == 2) comm.barrier(kName).wait();
  });
  CHECK(result.all_failed());
  CHECK(result.all_say("rank 0 calls send 'x' of 8 f32 elements to rank 1 (call 1)"));
  CHECK(result.all_say("rank 1 calls receive "));
  CHECK(result.took < 5s);
}

TEST_CASE(
    "a receive without an answer ends at the deadline, at the end of the other rank, or at its "
    "error",
    "[dist][times]") {
  const auto run = [](std::chrono::milliseconds timeout,
                      const std::function<void(Communicator&)>& other) {
    return outcome(
        2,
        [&](Communicator& comm) {
          Rank rank(comm);
          if (comm.rank() == 0)
            comm.receive(rank.empty(8), 1, kName).wait();
          else
            other(comm);
        },
        timeout);
  };
  const Outcome late = run(100ms, [](Communicator&) { std::this_thread::sleep_for(250ms); });
  CHECK_THAT(late.errors[0],
             ContainsSubstring("rank 1 did not match receive 'h.1 gradient' of 8 f32 elements "
                               "from rank 1 (call 1) within 100 ms") &&
                 ContainsSubstring("rank 1 has made no call yet"));
  CHECK(late.took < 600ms);
  CHECK_THAT(run(20s, [](Communicator&) {}).errors[0], ContainsSubstring("rank 1 has ended"));
  CHECK_THAT(run(20s, [](Communicator&) { throw std::runtime_error("it broke"); }).errors[0],
             ContainsSubstring("rank 1 stopped: it broke"));
}

TEST_CASE("a send while the other rank waits in a collective is an error at once", "[dist]") {
  const bool receives = GENERATE(true, false);
  const Outcome result = outcome(3, [&](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1);
    if (comm.rank() != 0)
      comm.all_reduce(t, Reduction::sum, {"norm", Purpose::norm}).wait();
    else
      (receives ? comm.receive(t, 1, kName) : comm.send(t, 1, kName)).wait();
  });
  CHECK(result.all_failed());
  CHECK(result.all_say("rank 0 waits in "));
  CHECK(result.all_say(
      "while rank 1 waits in all_reduce 'norm' of 8 f32 elements (call 1); neither can go on"));
  CHECK(result.took < 5s);
}

TEST_CASE("ranks that wait for each other in a circle fail at once", "[dist]") {
  const int ranks = GENERATE(2, 3, 5);
  const Outcome result = outcome(ranks, [&](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1);
    comm.receive(t, (comm.rank() + 1) % ranks, kName).wait();
    comm.send(t, (comm.rank() + ranks - 1) % ranks, kName).wait();
  });
  CHECK(result.all_failed());
  CHECK(result.all_say("; neither can go on"));
  CHECK(result.took < 5s);
}

TEST_CASE("a rank that waits for a circle is not named as a part of it", "[dist]") {
  const Outcome result = outcome(4, [](Communicator& comm) {
    Rank rank(comm);
    const int from[] = {1, 2, 3, 2};
    comm.receive(rank.filled(8, 1), from[comm.rank()], kName).wait();
  });
  CHECK(result.all_failed());
  CHECK(result.all_say("rank 2 waits in receive 'h.1 gradient' of 8 f32 elements from rank 3"));
  CHECK(
      result.all_say("while rank 3 waits in receive 'h.1 gradient' of 8 f32 elements from rank 2"));
}

TEST_CASE("a send that is dropped is an error", "[dist]") {
  const bool lane = GENERATE(false, true);
  const auto body = [](Communicator& comm) {
    Rank rank(comm);
    if (comm.rank() == 0) {
      { const Work dropped = comm.send(rank.filled(8, 1), 1, kName); }
    }
    comm.barrier(kName).wait();
  };
  CHECK_THAT(outcome(2, body, options(lane)).thrown,
             ContainsSubstring("rank 0 dropped the Work of send 'h.1 gradient'"));
}
