// The tester tested: a program of a few overlapped calls, right and with faults; the explored
// communicator, which moves what ordinary ranks move, bit for bit, in every schedule; what PCT
// guarantees, and what the depth-first search runs.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "dist/run_ranks.h"
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
class Rounds {
 public:
  Rounds(Communicator& comm, Memory& memory, Fault fault)
      : comm_(comm), memory_(memory), fault_(fault) {}

  float sum() {
    const Tensor total = Tensor::zeros(memory_, MemoryUse::gradient, {kElements / kRanks});
    for (int round = 0; round < kRounds; ++round) {
      fill(round);
      if (round > 0) finish(round - 1, total);
      issue(round);
    }
    finish(kRounds - 1, total);
    return kernel::download<float>(total)[0];
  }

 private:
  Tensor& buffer(int round) { return buffers_[fault_ == Fault::one_buffer ? 0 : round % 2]; }

  void fill(int round) {
    comm_.events().set_unit(str("round ", round));
    if (!buffer(round).defined())
      buffer(round) = Tensor::empty(memory_, MemoryUse::gradient, {kElements});
    kernel::fill((comm_.rank() + 1) * (round + 1), buffer(round));
  }

  void issue(int round) {
    if (fault_ == Fault::never_issued && comm_.rank() == 1 && round + 1 == kRounds) return;
    works_[round % 2] =
        comm_.reduce_scatter(buffer(round), Reduction::sum, {"values", Purpose::gradient});
    if (fault_ == Fault::freed_at_issue) buffer(round) = {};
  }

  void finish(int round, const Tensor& total) {
    const bool early = fault_ == Fault::read_too_early;
    if (fault_ == Fault::waits_for_other)
      works_[(round + 1) % 2].wait();
    else if (!early)
      works_[round % 2].wait();
    if (fault_ != Fault::freed_at_issue)
      kernel::accumulate(
          buffer(round).slice(comm_.rank() * kElements / kRanks, {kElements / kRanks}), total);
    works_[round % 2].wait();
  }

  Communicator& comm_;
  Memory& memory_;
  Fault fault_;
  Tensor buffers_[2];
  Work works_[2];
};

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
      const float mine = Rounds(comm, memory, fault).sum();
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

namespace {

constexpr int64_t kShard = 5;  // [n]

// What a rank has after one call of each kind; several are in flight at one time.
std::vector<float> values_after_calls(Communicator& comm, Memory& memory, Dtype dtype) {
  const int64_t n = kShard * comm.size();
  std::vector<Tensor> tensors;
  const auto values = [&](int64_t count) -> Tensor& {
    tensors.push_back(Tensor::empty(memory, MemoryUse::gradient, {count}, dtype));
    const auto stream = uint64_t(100 * comm.rank()) + tensors.size();
    kernel::normal({.seed = 1, .stream = stream, .mean = 0, .deviation = 1}, 0, tensors.back());
    return tensors.back();
  };
  tensors.reserve(16);
  const CallName name{"values", Purpose::check};
  std::vector<Work> works;
  const Tensor same = Tensor::empty(memory, MemoryUse::gradient, {n}, dtype);
  kernel::fill(0.3, same);
  works.push_back(comm.all_reduce(values(n), Reduction::sum, name));
  works.push_back(comm.all_reduce(values(n), Reduction::mean, name));
  works.push_back(comm.all_reduce(values(n), Reduction::sum, name, same));
  const Tensor sum = values(n), mean = values(n), from_start = values(n);
  works.push_back(comm.reduce_scatter(sum, Reduction::sum, name));
  works.push_back(comm.reduce_scatter(mean, Reduction::mean, name));
  works.push_back(comm.reduce_scatter(from_start, Reduction::sum, name, values(kShard)));
  works.push_back(comm.all_gather(values(n), name));
  works.push_back(comm.broadcast(values(n), comm.size() - 1, name));
  const Tensor from = values(n);
  works.push_back(comm.all_to_all(from, values(n), name));
  for (Work& work : works) work.wait();
  std::vector<float> all;
  for (const Tensor& t : tensors) {
    const bool scattered =
        t.same_storage(sum) || t.same_storage(mean) || t.same_storage(from_start);
    const Tensor specified = scattered ? t.slice(comm.rank() * kShard, {kShard}) : t;
    for (const float value : kernel::download_floats(specified)) all.push_back(value);
  }
  return all;
}

using OfRanks = std::vector<std::vector<float>>;

OfRanks on_ordinary_ranks(int ranks, Dtype dtype) {
  OfRanks all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
    all[size_t(comm.rank())] = values_after_calls(comm, memory, dtype);
  });
  return all;
}

OfRanks on_explored_ranks(int ranks, Dtype dtype, Schedule& schedule) {
  OfRanks all(static_cast<size_t>(ranks));
  ExploredRanks explored(ranks, schedule);
  explored.run([&](Communicator& comm) {
    CheckedBackend backend(explored, comm.rank());
    Memory memory({}, backend, comm.events(), {.poison = true});
    all[size_t(comm.rank())] = values_after_calls(comm, memory, dtype);
  });
  return all;
}

}  // namespace

TEST_CASE("every call on explored ranks has the bits of ordinary ranks", "[stages][explored]") {
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  const int ranks = GENERATE(1, 2, 3, 4);
  CAPTURE(name(dtype), ranks);
  const OfRanks expected = on_ordinary_ranks(ranks, dtype);
  Eager eager;
  Lazy lazy;
  CHECK(on_explored_ranks(ranks, dtype, eager) == expected);
  CHECK(on_explored_ranks(ranks, dtype, lazy) == expected);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Pct pct(seed, kPctDepth, ranks + 1, 500);
    CHECK(on_explored_ranks(ranks, dtype, pct) == expected);
  }
  CHECK(expected != on_ordinary_ranks(ranks, dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32));
}

namespace {

// Actors that make kSteps steps each, without waiting; the numbers of the actors in their order.
constexpr int kSteps = 10, kActors = 3;
std::vector<int> order_of(Schedule& schedule) {
  std::vector<int> left(kActors, kSteps), order, enabled;
  for (;;) {
    enabled.clear();
    for (int a = 0; a < kActors; ++a)
      if (left[size_t(a)] > 0) enabled.push_back(a);
    if (enabled.empty()) return order;
    const int current = order.empty() ? 0 : order.back();
    order.push_back(schedule.next({enabled, current, kActors - 1, true}));
    --left[size_t(order.back())];
  }
}

std::vector<int> pct_order(uint64_t seed, int depth) {
  Pct pct(seed, depth, kActors, kSteps * kActors);
  return order_of(pct);
}

}  // namespace

TEST_CASE("PCT finds a fault of depth d at least as often as its bound says",
          "[stages][explored]") {
  const uint64_t seeds = 2000;
  uint64_t first = 0, within = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    // Depth 1: actor 2 begins before actor 0. At least 1 / n of the schedules.
    const std::vector<int> one = pct_order(seed, 1);
    first += std::ranges::find(one, 2) < std::ranges::find(one, 0);
    // Depth 2: actor 2 makes all its steps between steps 5 and 6 of actor 0. At least 1 / (n k).
    const std::vector<int> two = pct_order(seed, 2);
    int of_0 = 0;
    bool inside = true;
    for (const int actor : two) {
      of_0 += actor == 0;
      inside = inside && (actor != 2 || of_0 == 5);
    }
    within += inside;
  }
  CHECK(first >= seeds / kActors);
  CHECK(within >= seeds / (kActors * kActors * kSteps));
  CHECK(within < seeds / 2);
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
