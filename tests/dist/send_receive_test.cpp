// Two ranks exchange tensors; the others take no part.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>
#include <thread>

#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("tensors go around a ring in both directions", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 8);
  const int step = GENERATE(1, -1);
  CAPTURE(ranks, step);
  std::vector<std::vector<float>> seen(static_cast<size_t>(ranks));
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        const int next = (comm.rank() + step + ranks) % ranks,
                  last = (comm.rank() - step + ranks) % ranks;
        Tensor mine = rank.filled(1000, float(comm.rank())), other = rank.empty(1000);
        for (int i = 0; i < ranks; ++i) {
          Work sent = comm.send(mine, next, kName);
          comm.receive(other, last, kName).wait();
          sent.wait();
          std::swap(mine, other);
          seen[size_t(comm.rank())].push_back(contents<float>(mine)[999]);
        }
      },
      within(20s));
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < ranks; ++i)
      CHECK(seen[size_t(r)][size_t(i)] == float(((r - step * (i + 1)) % ranks + ranks) % ranks));
}

TEST_CASE("two ranks may both send first and wait in any order", "[dist]") {
  const int order = GENERATE(0, 1, 2, 3);
  std::vector<float> got(2);
  run_ranks(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        const int other = 1 - comm.rank();
        const Tensor mine = rank.filled(500, float(comm.rank())), theirs = rank.empty(500);
        Work first = order & 1 ? comm.receive(theirs, other, kName) : comm.send(mine, other, kName);
        Work second =
            order & 1 ? comm.send(mine, other, kName) : comm.receive(theirs, other, kName);
        (order & 2 ? second : first).wait();
        (order & 2 ? first : second).wait();
        got[size_t(comm.rank())] = contents<float>(theirs)[499];
      },
      within(20s));
  CHECK(got == std::vector<float>{1, 0});
}

TEST_CASE("several sends between two ranks arrive in their order", "[dist]") {
  std::vector<float> got;
  run_ranks(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        std::vector<Work> works;
        std::vector<Tensor> tensors;
        for (int i = 0; i < 10; ++i) {
          tensors.push_back(rank.filled(7, float(i)));
          const CallName name{i % 2 ? "odd" : "even", Purpose::check};
          if (comm.rank() == 0) works.push_back(comm.send(tensors.back(), 2, name));
          if (comm.rank() == 2) works.push_back(comm.receive(tensors.back(), 0, name));
        }
        for (Work& work : works) work.wait();
        if (comm.rank() == 2)
          for (const Tensor& t : tensors) got.push_back(contents<float>(t)[6]);
        comm.barrier(kName).wait();
      },
      within(20s));
  std::vector<float> expected(10);
  std::iota(expected.begin(), expected.end(), 0.0f);
  CHECK(got == expected);
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
    "[dist]") {
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
  CHECK(result.all_say("in a circle"));
  CHECK(result.took < 5s);
}

TEST_CASE("a send that is dropped is an error", "[dist]") {
  const Outcome result = outcome(2, [](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1);
    if (comm.rank() == 0) {
      { const Work dropped = comm.send(t, 1, kName); }
    }
    comm.barrier(kName).wait();
  });
  CHECK_THAT(result.thrown, ContainsSubstring("rank 0 dropped the Work of send 'h.1 gradient'"));
}
