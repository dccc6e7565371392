// Groups of ranks that are threads, each with a separate NCCL communicator in the fake.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "tests/dist/split_calls.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;

namespace {

struct Ended {
  std::string thrown, misuse;
  std::vector<std::string> errors{4};
  std::chrono::steady_clock::duration took{};
  int finalized = 0, aborted = 0;
};

// Four ranks on two nodes.
Ended of_groups(bool lagging, std::vector<Fault> faults,
                const std::function<void(Communicator& comm, Communicator& intra,
                                         Communicator& inter, Rank& rank)>& body,
                std::chrono::milliseconds timeout = 20s) {
  FakeNccl fake(std::move(faults));
  const NcclApi api = fake.api();
  Ended ended;
  const auto start = std::chrono::steady_clock::now();
  try {
    run_nccl_ranks(4,
                   [&](Communicator& comm) {
                     Rank rank(comm, {}, fake_backends(lagging));
                     try {
                       const auto intra = comm.split({0, 0, 1, 1}, "intra"),
                                  inter = comm.split({0, 1, 0, 1}, "inter");
                       body(comm, *intra, *inter, rank);
                       comm.barrier(kName).wait();
                     } catch (const CommunicationError& error) {
                       ended.errors[size_t(comm.rank())] = error.what();
                       throw;
                     }
                   },
                   within(timeout), {.api = &api});
  } catch (const std::exception& error) {
    ended.thrown = error.what();
  }
  ended.took = std::chrono::steady_clock::now() - start;
  ended.misuse = fake.misuse();
  ended.finalized = fake.calls("ncclCommFinalize");
  ended.aborted = fake.calls("ncclCommAbort");
  return ended;
}

}  // namespace

TEST_CASE("every collective of a group over NCCL has the values of its members only", "[nccl]") {
  const Colors colors = kColors[size_t(GENERATE(0, 1, 2, 3, 4, 5))];
  const bool lagging = GENERATE(false, true), ordered = GENERATE(false, true);
  CAPTURE(colors, lagging, ordered);
  FakeNccl fake;
  const NcclApi api = fake.api();
  std::vector<std::string> wrong(colors.size()), wrong_if_others(colors.size());
  run_nccl_ranks(int(colors.size()),
                 [&](Communicator& comm) {
                   Rank rank(comm, {}, fake_backends(lagging));
                   const auto group = comm.split(colors, "intra");
                   std::vector<int> members = members_of(colors, comm.rank());
                   wrong[size_t(comm.rank())] = wrong_in_group(*group, rank, members);
                   for (int& member : members) member = (member + 1) % (comm.size() + 1);
                   wrong_if_others[size_t(comm.rank())] = wrong_in_group(*group, rank, members);
                 },
                 within(20s), {.api = &api, .ordered = ordered});
  for (size_t r = 0; r < colors.size(); ++r) {
    CHECK(wrong[r] == "");
    CHECK(wrong_if_others[r] != "");
  }
  CHECK(fake.misuse() == "");
  CHECK(fake.calls("ncclCommFinalize") == 2 * int(colors.size()));
}

TEST_CASE("NCCL: calls of two groups and of all ranks are in flight at once", "[nccl]") {
  const bool lagging = GENERATE(false, true);
  Buffers<float> out(4);
  const Ended ended = of_groups(
      lagging, {}, [&](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
        const float mine = float(1 << comm.rank());
        const Tensor a = rank.filled(100, mine), b = rank.filled(100, mine),
                     c = rank.filled(100, mine);
        Work one = intra.all_reduce(a, Reduction::sum, kName);
        Work two = inter.all_reduce(b, Reduction::sum, kName);
        Work three = comm.all_reduce(c, Reduction::sum, kName);
        three.wait();
        two.wait();
        one.wait();
        out[size_t(comm.rank())] = {contents<float>(a)[99], contents<float>(b)[99],
                                    contents<float>(c)[99]};
      });
  CHECK(ended.thrown == "");
  CHECK(ended.misuse == "");
  CHECK((ended.finalized == 12 && ended.aborted == 0));
  CHECK(out == Buffers<float>{{3, 5, 15}, {3, 10, 15}, {12, 5, 15}, {12, 10, 15}});
}

TEST_CASE("NCCL: a rank that stops in one group ends those that are in another", "[nccl]") {
  const bool lagging = GENERATE(false, true);
  const Ended ended = of_groups(
      lagging, {}, [&](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
        const Tensor t = rank.filled(8, 1);
        comm.barrier(kName).wait();  // all have joined their groups
        if (comm.rank() == 0) throw std::runtime_error("out of luck");
        (comm.rank() == 1 ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
      });
  CHECK(ended.thrown == "out of luck");
  for (const size_t r : {1, 2, 3})
    CHECK_THAT(ended.errors[r], ContainsSubstring("rank 0 stopped: out of luck"));
  CHECK_THAT(ended.errors[3], ContainsSubstring("(call 1 of group 'inter', ranks 1 and 3)"));
  CHECK(ended.took < 10s);
  CHECK(ended.misuse == "");
  CHECK(ended.aborted == 12);
}

TEST_CASE("NCCL that fails in one group ends all ranks with that cause", "[nccl]") {
  const bool lagging = GENERATE(false, true);
  const auto body = [](Communicator& comm, Communicator& intra, Communicator&, Rank& rank) {
    const Tensor t = rank.filled(8, 1);
    comm.all_reduce(t, Reduction::sum, kName).wait();
    intra.barrier(kName).wait();
    if (comm.rank() < 2) intra.all_gather(t, kName).wait();
    comm.all_gather(t, kName).wait();
  };
  // Rank 1's first ncclAllGather ends the all_reduce.
  const Ended ended = of_groups(lagging, {{"ncclAllGather", K::fails, 1, 2}}, body);
  for (const std::string& error : ended.errors)
    CHECK_THAT(error, ContainsSubstring("rank 1 in all_gather 'h.1 gradient' of 8 f32 elements "
                                        "(call 2 of group 'intra', ranks 0 and 1)"));
  CHECK(ended.misuse == "");
  CHECK(ended.aborted == 12);
  CHECK(of_groups(lagging, {}, body).thrown == "");
}

TEST_CASE("NCCL: a transfer of a group that stalls passes the deadline", "[nccl]") {
  require_emulator();
  FakeNccl fake({{"ncclAllGather", K::stalls, 1, 1}}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  std::vector<std::string> errors(3);
  const auto body = [&](Communicator& comm) {
    Rank rank(comm, {}, fake_backends(Place::emulated));
    const auto group = comm.split({0, 1, 1}, "intra");
    const Tensor t = rank.filled(64, 1);
    try {
      if (comm.rank() > 0) group->all_gather(t, kName).wait();
      if (comm.rank() > 0) (void)contents<float>(t);  // blocks until the watchdog aborts
      comm.barrier(kName).wait();
    } catch (const CommunicationError& error) {
      errors[size_t(comm.rank())] = error.what();
      throw;
    }
  };
  CHECK_THROWS_AS(run_nccl_ranks(3, body, within(300ms), {.api = &api}), CommunicationError);
  for (const std::string& error : errors)
    CHECK_THAT(error, ContainsSubstring("of group 'intra', ranks 1 and 2)"));
  CHECK(fake.misuse() == "");
}

TEST_CASE("NCCL: a mismatch in one group fails all ranks before it moves", "[nccl]") {
  const bool lagging = GENERATE(false, true);
  const auto run = [&](int64_t odd) {
    return of_groups(lagging, {},
                     [&](Communicator& comm, Communicator& intra, Communicator&, Rank& rank) {
                       const Tensor t = rank.filled(comm.rank() == 3 ? odd : 8, 1);
                       intra.all_reduce(t, Reduction::sum, kName).wait();
                     });
  };
  const Ended ended = run(9);
  for (const std::string& error : ended.errors)
    CHECK_THAT(error, ContainsSubstring("of 9 f32 elements (call 1 of group 'intra', ranks 2 and "
                                        "3)"));
  CHECK(ended.misuse == "");
  CHECK(run(8).thrown == "");
}
