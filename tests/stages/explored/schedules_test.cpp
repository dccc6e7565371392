// Schedules by themselves: what PCT guarantees, and what the depth-first search runs.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "tests/stages/explored/explored_ranks.h"

using namespace zl;
using namespace zl::test;

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
