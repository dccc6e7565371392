// The tester tested: a program of a few overlapped calls, right and with faults, and what the
// depth-first search runs. That explored ranks move the bits of ordinary ranks: overlap_test.cpp.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "tensor/kernels.h"
#include "tests/stages/explored/checked_backend.h"
#include "tests/stages/explored/explored_ranks.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kRanks = 3, kRounds = 4;
constexpr int64_t kElements = 6;

enum class Fault {
  none,
  one_buffer,       // the next values are written into the buffer that is in flight
  freed_at_issue,   // the buffer is freed before the wait
  read_too_early,   // the result is read before the wait
  waits_for_other,  // the wait is for the call before
  other_order,      // rank 1 issues two calls the other way round
  never_issued,     // rank 1 leaves out the last call
};

// Each round fills a buffer, reduces it while the next one is filled, and adds this rank's shard.
float sum_of_rounds(Communicator& comm, Memory& memory, Fault fault) {
  constexpr int64_t kShard = kElements / kRanks;
  const Tensor total = Tensor::zeros(memory, MemoryUse::gradient, {kShard});
  Tensor buffers[2];
  Work works[2];
  for (int round = 0; round <= kRounds; ++round) {
    const int now = round % 2, before = 1 - now;
    const bool one = fault == Fault::one_buffer, last = round == kRounds;
    Tensor &filled = buffers[one ? 0 : now], &reduced = buffers[one ? 0 : before];
    if (!last) {
      comm.events().set_unit(str("round ", round));
      if (!filled.defined()) filled = Tensor::empty(memory, MemoryUse::gradient, {kElements});
      kernel::fill((comm.rank() + 1) * (round + 1), filled);
    }
    if (round > 0) {
      if (fault != Fault::read_too_early)
        works[fault == Fault::waits_for_other ? now : before].wait();
      if (fault != Fault::freed_at_issue)
        kernel::accumulate(reduced.slice(comm.rank() * kShard, {kShard}), total);
      works[before].wait();
    }
    if (last || (fault == Fault::never_issued && comm.rank() == 1 && round + 1 == kRounds))
      continue;
    works[now] = comm.reduce_scatter(filled, Reduction::sum, {"values", Purpose::gradient});
    if (fault == Fault::freed_at_issue) filled = {};
  }
  return kernel::download<float>(total)[0];
}

// What the run did: the sum of rank 0, or its error.
std::string outcome(Fault fault, Schedule& schedule, bool check_races = true) {
  ExploredRanks ranks(kRanks, schedule, {.on_event = {}, .check_races = check_races});
  float sum = 0;
  try {
    ranks.run([&](Communicator& comm) {
      CheckedBackend backend(ranks, comm.rank());
      Memory memory({}, backend, comm.events(), {.poison = true});
      if (fault == Fault::other_order) {
        const Tensor a = Tensor::zeros(memory, MemoryUse::gradient, {kElements});
        const bool first = comm.rank() != 1;
        comm.all_gather(a, {first ? "a" : "b", Purpose::parameter}).wait();
        comm.all_gather(a, {first ? "b" : "a", Purpose::parameter}).wait();
      }
      const float mine = sum_of_rounds(comm, memory, fault);
      if (comm.rank() == 0) sum = mine;
    });
  } catch (const std::exception& error) {
    return error.what();
  }
  for (int r = 0; r < kRanks; ++r) REQUIRE(ranks.outcome(r).live_bytes == 0);
  return str("sum ", sum);
}

// Over ranks and rounds: (1 + 2 + 3) * (1 + 2 + 3 + 4).
const std::string kRight = "sum 60";

std::set<std::string> outcomes(Fault fault) {
  std::set<std::string> all;
  Eager eager;
  Lazy lazy;
  all.insert(outcome(fault, eager));
  all.insert(outcome(fault, lazy));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Pct pct(seed, kPctDepth, kRanks + 1, 300);
    all.insert(outcome(fault, pct));
  }
  return all;
}

}  // namespace

TEST_CASE("every fault of an overlapped program is found in every schedule", "[stages][explored]") {
  CHECK(outcomes(Fault::none) == std::set<std::string>{kRight});
  for (const auto& [fault, words] : std::vector<std::pair<Fault, std::string>>{
           // Rank 0 fills its only buffer for round 1 while call 1 is in flight.
           {Fault::one_buffer,
            "call 1, reduce_scatter 'values', on rank 0 writes bytes 0 to 24 of a block of 24 B; "
            "there is no order between this and: rank 0: fill in unit round 1 writes them"},
           {Fault::read_too_early, "there is no order"},
           {Fault::waits_for_other, "there is no order"},
           {Fault::other_order, "rank 1 calls all_gather 'b'"},
           {Fault::never_issued, "rank 0 waits for reduce_scatter 'values'"}}) {
    for (const std::string& text : outcomes(fault)) {
      CAPTURE(int(fault));
      CHECK(text != kRight);
    }
    Eager eager;
    INFO(int(fault));
    CHECK_THAT(outcome(fault, eager), ContainsSubstring(words));
  }
  // The call writes into freed memory, or into another tensor if the block is in use again.
  Eager eager;
  CHECK_THAT(
      outcome(Fault::freed_at_issue, eager),
      ContainsSubstring("memory that is not allocated") || ContainsSubstring("there is no order"));
  CHECK_FALSE(outcomes(Fault::freed_at_issue).contains(kRight));
}

namespace {

// The network first, then the highest rank: rank 0 reads last, when the sum is there by luck.
class RankZeroLast final : public Schedule {
 public:
  int next(const Choice& c) override { return c.enabled.back(); }
};

}  // namespace

TEST_CASE("a race is found also in a schedule in which all values are right by luck",
          "[stages][explored]") {
  RankZeroLast lucky;
  Lazy lazy;
  CHECK(outcome(Fault::read_too_early, lucky, false) == kRight);
  CHECK(outcome(Fault::read_too_early, lazy, false) != kRight);
  CHECK_THAT(outcome(Fault::read_too_early, lucky), ContainsSubstring("there is no order"));
}

TEST_CASE("the depth-first search runs each order of calls and unit events once",
          "[stages][explored]") {
  const int calls = 2, units = 3;  // of each rank; the units between issue and wait
  DepthFirst search;
  std::set<std::vector<int>> orders;
  int schedules = 0;
  do {
    ++schedules;
    ExploredRanks ranks(2, search);
    std::vector<int> before(calls);  // for each call: how many unit events came before it
    ranks.run([&](Communicator& comm) {
      for (int call = 0; call < calls; ++call) {
        const auto all = str("call ", call);
        Work work = comm.barrier({all, Purpose::check});
        for (int unit = 0; unit < units; ++unit) {
          comm.events().append(EventKind::unit, "unit");
          if (ranks.carried_out() == call) ++before[size_t(call)];
        }
        work.wait();
      }
    });
    orders.insert(before);
  } while (search.advance());
  CHECK(schedules == (units + 1) * (units + 1));
  CHECK(int(orders.size()) == schedules);
}
