// Calls that are issued together, in groups, through the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "dist/ordered/polling.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("NCCL: a send and a receive are refused at once, and say what has them", "[nccl]") {
  const bool sends = GENERATE(false, true);
  const auto ended = fake_outcome(2, {}, [&](Rank& rank) {
    const Tensor t = rank.filled(8, 1);
    const int other = 1 - rank.comm.rank();
    (void)(sends ? rank.comm.send(t, other, kName) : rank.comm.receive(t, other, kName));
  });
  CHECK_THAT(ended.thrown, ContainsSubstring(sends ? "send 'h.1 gradient'" : "receive 'h.1 grad") &&
                               ContainsSubstring("use ranks as threads"));
  CHECK(ended.misuse == "");
}

TEST_CASE("NCCL: calls in a group are issued together, and have the bits of calls one by one",
          "[nccl]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const auto program = [](bool grouped) {
    return [grouped](Communicator& comm, const Tensor& t) {
      const int n = comm.size();
      std::vector<Work> works;
      if (grouped) comm.begin_group();
      works.push_back(comm.all_reduce(t.slice(0, {n * 20 + 1}), Reduction::mean, kName));
      works.push_back(comm.reduce_scatter(t.slice(n * 20 + 1, {n * 10}), Reduction::sum, kName));
      works.push_back(comm.all_gather(t.slice(n * 30 + 1, {n * 5}), kName));
      if (grouped) comm.end_group();
      for (Work& work : works) work.wait();
      comm.all_gather(t.slice(n * 20 + 1, {n * 10}), kName).wait();
    };
  };
  const auto in = inputs<float>(ranks, ranks * 40);
  for (const bool lagging : {false, true}) {
    CAPTURE(ranks, lagging);
    const auto grouped = after_nccl<float>(in, program(true), {.lagging = lagging}),
               single = after<float>(in, program(false));
    for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(grouped[r], single[r]));
  }
}

TEST_CASE("NCCL: a group of reductions takes two groups of NCCL, however many they are", "[nccl]") {
  const auto groups = [](bool grouped) {
    const auto ended = fake_outcome(2, {}, [&](Rank& rank) {
      const Tensor t = rank.filled(80, 1);
      std::vector<Work> works;
      if (grouped) rank.comm.begin_group();
      for (int i = 0; i < 4; ++i)
        works.push_back(rank.comm.all_reduce(t.slice(20 * i, {20}), Reduction::mean, kName));
      if (grouped) rank.comm.end_group();
      for (Work& work : works) work.wait();
    });
    return ended.groups / 2 - 1;  // without joining
  };
  CHECK(groups(true) == 2);
  CHECK(groups(false) == 8);
}

TEST_CASE("NCCL: what a rank runs out of in a group is the cause that all ranks get", "[nccl]") {
  const auto ended = fake_outcome(2, {}, [](Rank& rank) {
    const Tensor t = rank.filled(80, 1);
    rank.comm.begin_group();
    Work gathered = rank.comm.all_gather(t, kName);
    if (rank.comm.rank() == 1) rank.memory.fail_at(1);  // the scratch of the sum
    Work summed = rank.comm.all_reduce(t, Reduction::mean, kName);
    rank.comm.end_group();
    gathered.wait();
    summed.wait();
  });
  CHECK_THAT(ended.errors[0], ContainsSubstring("rank 1 stopped") && !ContainsSubstring("issued"));
  CHECK_THROWS_AS(std::rethrow_exception(ended.cause), OutOfMemory);
}

TEST_CASE("NCCL: waiting within a group is a mistake that is named", "[nccl]") {
  const auto ended = fake_outcome(2, {.lagging = true, .timeout = 300ms}, [](Rank& rank) {
    rank.comm.begin_group();
    rank.comm.all_gather(rank.filled(8, 1), kName).wait();
    rank.comm.end_group();
  });
  CHECK_THAT(ended.thrown, ContainsSubstring("is waited for before its group has ended"));
  CHECK(ended.misuse == "");
}

TEST_CASE("NCCL: a rank that waits for NCCL asks often at first, and then every 50 us", "[nccl]") {
  CHECK(pause_after_poll(1) == 0us);
  for (int polls = 1; polls < 1000; ++polls)
    CHECK(pause_after_poll(polls) <= pause_after_poll(polls + 1));
  CHECK(pause_after_poll(1000) == 50us);
}
