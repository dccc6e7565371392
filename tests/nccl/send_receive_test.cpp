// Two ranks exchange tensors, and calls are issued in groups, through the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "dist/nccl/handle.h"
#include "tensor/kernels.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

using Program = std::function<void(Communicator&, const Tensor&)>;

void check_same_as_threads(int ranks, int64_t count, const Program& program) {
  const auto in = inputs<float>(ranks, count);
  const auto threads = after<float>(in, program);
  for (const bool lagging : {false, true}) {
    CAPTURE(ranks, lagging);
    const auto nccl = after_nccl<float>(in, program, {.lagging = lagging});
    for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(nccl[r], threads[r]));
    CHECK_FALSE(same_bits(nccl[0], in[0]));
  }
}

std::string thrown_by(int ranks, const std::function<void(Rank&)>& body) {
  FakeNccl fake;
  const NcclApi api = fake.api();
  try {
    run_nccl_ranks(ranks,
                   [&](Communicator& comm) {
                     Rank rank(comm, {}, fake_backends(true));
                     body(rank);
                   },
                   within(300ms), {.api = &api});
  } catch (const std::exception& error) {
    return str(error.what(), fake.misuse());
  }
  return str("nothing", fake.misuse());
}

}  // namespace

TEST_CASE("NCCL: tensors go around a ring", "[nccl]") {
  const int ranks = GENERATE(2, 3, 4);
  check_same_as_threads(ranks, 2 * 50, [](Communicator& comm, const Tensor& t) {
    const int n = comm.size(), r = comm.rank();
    for (int i = 0; i < n - 1; ++i) {
      Work sent = comm.send(t.slice(0, {50}), (r + 1) % n, kName);
      comm.receive(t.slice(50, {50}), (r + n - 1) % n, kName).wait();
      sent.wait();
      kernel::copy(t.slice(50, {50}), t.slice(0, {50}));
    }
  });
}

TEST_CASE("NCCL: two ranks may both send first and wait in any order", "[nccl]") {
  const int order = GENERATE(0, 1, 2, 3);
  check_same_as_threads(2, 2 * 50, [order](Communicator& comm, const Tensor& t) {
    const int other = 1 - comm.rank();
    const Tensor mine = t.slice(0, {50}), theirs = t.slice(50, {50});
    Work first = order & 1 ? comm.receive(theirs, other, kName) : comm.send(mine, other, kName);
    Work second = order & 1 ? comm.send(mine, other, kName) : comm.receive(theirs, other, kName);
    (order & 2 ? second : first).wait();
    (order & 2 ? first : second).wait();
  });
}

TEST_CASE("NCCL: ranks may wait for one send while others of the same ranks are posted", "[nccl]") {
  const bool lagging = GENERATE(false, true);
  const auto in = inputs<float>(3, 3 * 50);
  const auto program = [](Communicator& comm, const Tensor& t) {
    const Tensor first = t.slice(0, {50}), second = t.slice(50, {50});
    std::vector<Work> works;
    if (comm.rank() == 1) works.push_back(comm.receive(first, 0, kName));
    if (comm.rank() == 1) works.push_back(comm.send(second, 2, kName));
    if (comm.rank() == 2) works.push_back(comm.receive(first, 0, kName));
    if (comm.rank() == 2) works.push_back(comm.receive(second, 1, kName));
    (void)comm.all_gather_object("", "posted");
    for (const int to : {1, 2})
      if (comm.rank() == 0) comm.send(t.slice(100, {50}), to, kName).wait();
    for (Work& work : works) work.wait();
  };
  const auto threads = after<float>(in, program);
  const auto nccl = after_nccl<float>(in, program, {.lagging = lagging});
  for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(nccl[r], threads[r]));
  CHECK_FALSE(same_bits(nccl[2], in[2]));
}

TEST_CASE("NCCL: several sends between two ranks arrive in their order, also around a collective",
          "[nccl]") {
  const bool between = GENERATE(false, true);
  check_same_as_threads(3, 3 * 10, [between](Communicator& comm, const Tensor& t) {
    std::vector<Work> works;
    for (int i = 0; i < 10; ++i) {
      if (comm.rank() == 0) works.push_back(comm.send(t.slice(i, {1}), 2, kName));
      if (comm.rank() == 2) works.push_back(comm.receive(t.slice(i, {1}), 0, kName));
      if (i == 4 && between) comm.all_reduce(t.slice(10, {20}), Reduction::sum, kName).wait();
    }
    for (Work& work : works) work.wait();
    comm.broadcast(t, 2, kName).wait();
  });
}

TEST_CASE("NCCL: a send and a receive that do not match, or have no answer, are errors", "[nccl]") {
  CHECK_THAT(thrown_by(2,
                       [](Rank& rank) {
                         if (rank.comm.rank() == 0)
                           rank.comm.send(rank.filled(8, 1), 1, kName).wait();
                         else
                           rank.comm.receive(rank.filled(9, 1), 0, kName).wait();
                       }),
             ContainsSubstring("rank 0 calls send") && ContainsSubstring("rank 1 calls receive") &&
                 !ContainsSubstring("ended"));
  CHECK_THAT(thrown_by(2,
                       [](Rank& rank) {
                         if (rank.comm.rank() == 0)
                           rank.comm.receive(rank.filled(8, 1), 1, kName).wait();
                         else
                           std::this_thread::sleep_for(700ms);
                       }),
             ContainsSubstring("did not match receive"));
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
    FakeNccl fake;
    const NcclApi api = fake.api();
    run_nccl_ranks(
        2,
        [&](Communicator& comm) {
          Rank rank(comm);
          const Tensor t = rank.filled(80, 1);
          std::vector<Work> works;
          if (grouped) comm.begin_group();
          for (int i = 0; i < 4; ++i)
            works.push_back(comm.all_reduce(t.slice(20 * i, {20}), Reduction::mean, kName));
          if (grouped) comm.end_group();
          for (Work& work : works) work.wait();
        },
        within(20s), {.api = &api});
    return fake.calls("ncclGroupEnd") / 2 - 1;  // without joining
  };
  CHECK(groups(true) == 2);
  CHECK(groups(false) == 8);
}

TEST_CASE("NCCL: waiting within a group is a mistake that is named", "[nccl]") {
  CHECK_THAT(
      thrown_by(2,
                [](Rank& rank) {
                  rank.comm.begin_group();
                  rank.comm.all_gather(rank.filled(8, 1), kName).wait();
                  rank.comm.end_group();
                }),
      ContainsSubstring("is waited for before its group has ended") && !ContainsSubstring("times"));
}

TEST_CASE("NCCL: a rank that waits for NCCL asks often at first, and then every 50 us", "[nccl]") {
  CHECK(pause_after_poll(1) == 0us);
  for (int polls = 1; polls < 1000; ++polls)
    CHECK(pause_after_poll(polls) <= pause_after_poll(polls + 1));
  CHECK(pause_after_poll(1000) == 50us);
}
