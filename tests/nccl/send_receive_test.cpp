// Two ranks exchange tensors, and calls are issued in groups, through the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "dist/nccl/handle.h"
#include "tests/dist/exchanges.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("NCCL: what two ranks exchange arrives in its order, however they wait for it",
          "[nccl]") {
  const int ranks = GENERATE(2, 3, 4);
  const bool lagging = GENERATE(false, true);
  CAPTURE(ranks, lagging);
  std::vector<std::string> wrong(size_t(ranks), "not said");
  const auto ended = fake_outcome(ranks, {.lagging = lagging}, [&](Rank& rank) {
    wrong[size_t(rank.comm.rank())] = wrong_in_exchanges(rank);
  });
  CHECK(wrong == std::vector<std::string>(size_t(ranks)));
  CHECK(ended.thrown + ended.misuse == "");
}

TEST_CASE("NCCL: a send and a receive that do not match, or have no answer, are errors", "[nccl]") {
  const FakeOptions lagging{.lagging = true, .timeout = 300ms};
  const auto differ = fake_outcome(2, lagging, [](Rank& rank) {
    if (rank.comm.rank() == 0)
      rank.comm.send(rank.filled(8, 1), 1, kName).wait();
    else
      rank.comm.receive(rank.filled(9, 1), 0, kName).wait();
  });
  CHECK_THAT(differ.thrown,
             ContainsSubstring("rank 0 calls send") && ContainsSubstring("rank 1 calls receive"));
  const auto late = fake_outcome(2, lagging, [](Rank& rank) {
    if (rank.comm.rank() == 0)
      rank.comm.receive(rank.filled(8, 1), 1, kName).wait();
    else
      std::this_thread::sleep_for(700ms);
  });
  CHECK_THAT(late.thrown, ContainsSubstring("did not match receive"));
  CHECK(differ.misuse + late.misuse == "");
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
