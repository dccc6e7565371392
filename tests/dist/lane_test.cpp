// Calls that a lane carries out: the same bits, log and errors as without, while the rank goes on,
// also if a rank fails or comes late while calls are in flight.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <thread>

#include "dist/ordered/meta_communicator.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

// What one rank saw of the program below.
struct Seen {
  std::vector<std::vector<float>> results;
  CommunicationLog::Rows rows;
  std::vector<std::string> begun;                             // the names of calls, in order
  std::map<std::string, std::vector<EventKind>> kinds;        // of each call, in order
  std::map<std::string, std::map<EventKind, int64_t>> times;  // [ns]
  std::vector<std::string> gathered;                          // by all_gather_object
};

// All collectives; all are issued before the first is waited for, and waited for in `order`.
Seen program(Communicator& comm, int64_t seed, const std::vector<size_t>& order) {
  Seen seen;
  const int n = comm.size(), r = comm.rank();
  comm.events().listen([&](const Event& e) {
    if (e.kind < EventKind::collective_begin) return;
    if (e.kind == EventKind::collective_begin) seen.begun.push_back(e.detail);
    seen.kinds[e.detail].push_back(e.kind);
    seen.times[e.detail][e.kind] = e.nanoseconds;
  });
  Rank rank(comm);
  const auto fresh = [&](int64_t salt, int64_t count) {
    return rank.tensor(values<float>(seed + salt, r, count));
  };
  const Tensor sum = fresh(1, 1013), mean = fresh(2, 1013), scattered = fresh(3, 211L * n),
               gathered = fresh(4, 7L * n), sent = fresh(5, 31), from = fresh(6, 33L * n),
               to = rank.empty(33L * n), on = fresh(7, 1013), on_shard = fresh(8, 211L * n);
  const Tensor start = rank.tensor(values<float>(seed + 9, 0, 1013)), shard = fresh(10, 211);
  std::vector<Work> works(9);
  works[0] = comm.all_reduce(sum, Reduction::sum, {"sum", Purpose::norm});
  works[1] = comm.all_reduce(mean, Reduction::mean, {"mean", Purpose::gradient});
  works[2] = comm.reduce_scatter(scattered, Reduction::mean, {"scatter", Purpose::gradient});
  works[3] = comm.all_gather(gathered, {"gather", Purpose::parameter});
  works[4] = comm.broadcast(sent, n - 1, {"send", Purpose::check});
  works[5] = comm.all_to_all(from, to, {"exchange", Purpose::check});
  works[6] = comm.barrier({"meet", Purpose::check});
  works[7] = comm.all_reduce(on, Reduction::sum, {"on", Purpose::gradient}, start);
  works[8] = comm.reduce_scatter(on_shard, Reduction::sum, {"on shard", Purpose::gradient}, shard);
  for (const size_t i : order) works[i].wait();
  seen.gathered = comm.all_gather_object(str("rank ", r), "texts");
  for (const Tensor& t : {sum, mean, gathered, sent, to, on})
    seen.results.push_back(contents<float>(t));
  for (const Tensor& t : {scattered, on_shard})
    seen.results.push_back(contents<float>(t.slice(211L * r, {211})));
  seen.rows = comm.log().rows();
  return seen;
}

std::vector<Seen> seen_by_ranks(int ranks, int64_t seed, const RankOptions& options,
                                const std::vector<size_t>& order) {
  std::vector<Seen> all{size_t(ranks)};
  run_ranks(
      ranks, [&](Communicator& comm) { all[size_t(comm.rank())] = program(comm, seed, order); },
      options);
  return all;
}

bool same_results(const Seen& a, const Seen& b) {
  return std::ranges::equal(a.results, b.results,
                            [](const auto& x, const auto& y) { return same_bits(x, y); });
}

const std::vector<size_t> kInOrder = {0, 1, 2, 3, 4, 5, 6, 7, 8};

// Waits until another rank sets the flag.
void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("lanes change no bit, no row of the log and no order of calls", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 5);
  CAPTURE(ranks);
  const auto without = seen_by_ranks(ranks, 1, within(20s), kInOrder),
             other = seen_by_ranks(ranks, 2, within(20s), kInOrder);
  std::vector<size_t> order = kInOrder;
  std::mt19937 random(5);
  for (int i = 0; i < 4; ++i, std::shuffle(order.begin(), order.end(), random)) {
    const auto with = seen_by_ranks(ranks, 1, lanes(), order);
    for (size_t r = 0; r < with.size(); ++r) {
      CHECK(same_results(with[r], without[r]));
      CHECK_FALSE(same_results(with[r], other[r]));  // the twin: other values
      CHECK(with[r].rows == without[r].rows);
      CHECK(with[r].begun == without[r].begun);
      CHECK(with[r].gathered == without[r].gathered);
    }
  }
}

TEST_CASE("a call in flight has its five events in order, and times that fit", "[dist]") {
  const int ranks = GENERATE(1, 3);
  for (const Seen& seen : seen_by_ranks(ranks, 1, lanes(), {8, 7, 6, 5, 4, 3, 2, 1, 0})) {
    CHECK(seen.kinds.size() == 9);
    for (const auto& [name, kinds] : seen.kinds) {
      CAPTURE(name);
      CHECK(kinds == std::vector{EventKind::collective_begin, EventKind::collective_wait,
                                 EventKind::collective_met, EventKind::collective_moved,
                                 EventKind::collective_end});
      const auto& at = seen.times.at(name);
      CHECK(at.at(EventKind::collective_begin) <= at.at(EventKind::collective_met));
      CHECK(at.at(EventKind::collective_met) <= at.at(EventKind::collective_moved));
      CHECK(at.at(EventKind::collective_moved) <= at.at(EventKind::collective_end));
      CHECK(at.at(EventKind::collective_begin) <= at.at(EventKind::collective_wait));
    }
  }
  // The twin: without lanes a call is complete when it returns, and nothing waits. On a GPU, what
  // moves data is complete when the stream waits for it.
  const std::vector<Seen> without = seen_by_ranks(ranks, 1, within(20s), kInOrder);
  for (const auto& [name, kinds] : without[0].kinds) {
    CAPTURE(name);
    std::vector expected{EventKind::collective_begin, EventKind::collective_met,
                         EventKind::collective_end};
    if (!wanted_gpu().empty() && name != "meet")
      expected.insert(expected.end() - 1, EventKind::collective_wait);
    CHECK(kinds == expected);
  }
}

TEST_CASE("a rank goes on while its call waits for the others", "[dist]") {
  std::atomic<bool> went_on = false;
  const Outcome result = outcome(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        if (comm.rank() == 1) wait_for(went_on);
        Work work = comm.all_reduce(rank.filled(8, 1), Reduction::sum, kName);
        went_on = true;  // without a lane rank 0 never comes here
        work.wait();
      },
      lanes());
  CHECK(result.thrown == "");
}

TEST_CASE("calls of a group are issued together and waited for later", "[dist]") {
  std::vector<float> sums(3);
  const Outcome result = outcome(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        const Tensor a = rank.filled(8, 1), b = rank.filled(8, 2);
        comm.compare_calls_only_on_timeout();
        comm.begin_group();
        Work first = comm.all_reduce(a, Reduction::sum, kName),
             second = comm.all_reduce(b, Reduction::sum, kName);
        comm.end_group();
        second.wait();
        first.wait();
        sums[size_t(comm.rank())] = contents<float>(a)[7] + contents<float>(b)[7];
      },
      lanes());
  CHECK(result.thrown == "");
  CHECK(sums == std::vector<float>(3, 9));
}

TEST_CASE("lanes have names, and an engine that allocates is refused", "[dist]") {
  EventStream rank_events, lane_events;
  const SharedFailure failure{.fail = [](const std::string&) {}, .failed = [] { return false; }};
  CHECK_THROWS_WITH(own_lane()(meta_communicator(0, 2, lane_events, true), rank_events, failure),
                    ContainsSubstring("scratch memory"));
  CHECK_NOTHROW(own_lane()(meta_communicator(0, 2, lane_events), rank_events, failure));
}

namespace {

constexpr double kLinkTime = 0.02;  // [s] of one call below

// Four rounds of two calls that take kLinkTime together on the link, and four computations of the
// same time. Returns the times of rank 0: [s] of all, and of its communication.
std::pair<double, TimeSpent> four_rounds(bool overlap, const Link& link, bool group = false) {
  std::pair<double, TimeSpent> result;
  run_ranks(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        const Tensor t = rank.filled(500, 1), u = rank.filled(500, 2);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 4; ++i) {
          if (group) comm.begin_group();
          Work first = comm.all_reduce(t, Reduction::sum, kName),
               second = comm.all_reduce(u, Reduction::sum, kName);
          if (group) comm.end_group();
          if (!overlap) first.wait(), second.wait();
          std::this_thread::sleep_for(std::chrono::duration<double>(kLinkTime));
          first.wait(), second.wait();
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (comm.rank() == 0) result = {took.count(), comm.log().total_time()};
      },
      lanes(20s, link));
  return result;
}

}  // namespace

TEST_CASE("a link delays each call, and computation hides the delay", "[dist][times]") {
  // Each of 2 ranks sends 2 (N - 1) / N = 1 times the 2,000 B, twice.
  const Link link = GENERATE(Link{.bandwidth = 4000 / kLinkTime}, Link{.latency = kLinkTime / 2},
                             Link{.bandwidth = 8000 / kLinkTime, .latency = kLinkTime / 4});
  const bool group = GENERATE(false, true);
  const auto [sum, shown] = four_rounds(false, link, group);
  const auto [longest, hidden] = four_rounds(true, link, group);
  const auto [free, none] = four_rounds(false, {});
  CHECK(sum >= 8 * kLinkTime);
  CHECK(longest >= 4 * kLinkTime);
  CHECK(longest < 0.8 * sum);  // max, not sum
  CHECK(free < 0.8 * sum);
  for (const TimeSpent& time : {shown, hidden}) {
    CHECK(time.calls == 8);
    CHECK(double(time.nanoseconds) >= 4 * kLinkTime * 1e9);
  }
  CHECK(hidden.hidden() > hidden.nanoseconds / 2);
  CHECK(shown.hidden() < shown.nanoseconds / 2);
  CHECK(shown.exposed > 2 * hidden.exposed);
}

TEST_CASE("a rank that is late for a call in flight is named, with phase and unit of the issue",
          "[dist]") {
  const Outcome result = outcome(
      2,
      [](Communicator& comm) {
        Rank rank(comm);
        comm.events().set_phase("backward");
        comm.events().set_unit("h.2");
        comm.barrier({"start", Purpose::check}).wait();
        const Tensor t = rank.filled(8, 1);
        if (comm.rank() == 1) std::this_thread::sleep_for(250ms);
        Work work = comm.all_reduce(t, Reduction::sum, kName);
        comm.events().set_phase("step");
        comm.events().set_unit("");
        work.wait();
      },
      lanes(100ms));
  CHECK_THAT(result.errors[0], ContainsSubstring("only 1 of 2 ranks came") &&
                                   ContainsSubstring("rank 1 was last seen in barrier 'start'"));
  CHECK_THAT(last_failure_report(),
             ContainsSubstring("all_reduce 'h.1 gradient' of 8 f32 elements, sum (call 2), phase "
                               "backward, unit h.2: waiting for"));
}

TEST_CASE("a failure ends a call on a link that would take for hours", "[dist]") {
  const Outcome result = outcome(
      2,
      [](Communicator& comm) {
        Rank rank(comm);
        Work work = comm.all_reduce(rank.filled(1000, 1), Reduction::sum, kName);
        if (comm.rank() == 1) throw std::out_of_range("it broke");
        work.wait();
        comm.barrier(kName).wait();
      },
      lanes(0ms, {.bandwidth = 0.1}));
  CHECK(result.thrown == "it broke");
  CHECK(result.took < 5s);
}
