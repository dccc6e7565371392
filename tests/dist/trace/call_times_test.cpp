// The times of calls, from events whose times are known.
// The trials of bench comm: right results have no wrong value, and each wrong one is counted.

#include "dist/trace/call_times.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <tuple>

#include "dist/trace/collective_trial.h"
#include "tensor/kernels.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

Event event(int64_t microseconds, EventKind kind, const char* what, const char* name,
            int64_t bytes = 0) {
  return {.nanoseconds = microseconds * 1000,
          .kind = kind,
          .what = what,
          .detail = name,
          .bytes = bytes};
}

using Ended = std::vector<std::pair<std::string, int64_t>>;  // names and times [ns]

Ended see(OpenCalls& calls, const std::vector<Event>& events) {
  Ended all;
  for (const Event& e : events)
    if (const auto call = calls.see(e)) all.emplace_back(call->name, call->end() - call->began);
  return all;
}

constexpr const char *kA = "h.0 gradient", *kB = "h.1 gradient";
constexpr EventKind kBegin = EventKind::collective_begin, kMet = EventKind::collective_met,
                    kWait = EventKind::collective_wait, kMoved = EventKind::collective_moved,
                    kEnd = EventKind::collective_end;

}  // namespace

TEST_CASE("calls that are under way together keep their own times", "[dist]") {
  OpenCalls calls;  // one that was begun before counts nowhere
  CHECK(see(calls, {event(1, kEnd, "all_gather", kA), event(10, kBegin, "send", kA, 8),
                    event(20, kBegin, "receive", kA, 8), event(30, kMet, "receive", kA),
                    event(50, kEnd, "receive", kA), event(70, kEnd, "send", kA)}) ==
        Ended{{kA, 30'000}, {kA, 60'000}});
  CHECK(calls.calls().empty());
}

TEST_CASE("a call in flight takes until its data has moved, however late the rank waits",
          "[dist]") {
  const bool on_lane = GENERATE(true, false);  // the twin: who does not say so, moves until the end
  OpenCalls calls;
  (void)see(calls, {event(100, kBegin, "all_gather", kA), event(200, kBegin, "all_gather", kB)});
  Ended ended;
  for (const auto& [name, met, moved] : {std::tuple(kB, 300, 310), std::tuple(kA, 120, 150)}) {
    std::vector<Event> events{event(400, kWait, "all_gather", name),
                              event(met, kMet, "all_gather", name)};
    if (on_lane) events.push_back(event(moved, kMoved, "all_gather", name));
    events.push_back(event(500, kEnd, "all_gather", name));
    for (const auto& call : see(calls, events)) ended.push_back(call);
  }
  CHECK(ended ==
        (on_lane ? Ended{{kB, 110'000}, {kA, 50'000}} : Ended{{kB, 300'000}, {kA, 400'000}}));
}

TEST_CASE("bandwidths are those of nccl-tests", "[dist]") {
  const auto check = [](const char* kind, double factor) {
    CAPTURE(kind);
    const Bandwidth b = bandwidth(kind, 1'000'000, 1'000'000, 4);  // 1 MB in 1 ms: 8 Gbit/s
    CHECK(b.algorithm == 8);
    CHECK(b.bus == Catch::Approx(8 * factor));
  };
  check("all_reduce", 1.5);
  for (const char* kind : {"reduce_scatter", "all_gather", "all_to_all"}) check(kind, 0.75);
  for (const char* kind : {"broadcast", "send", "receive"}) check(kind, 1);
  CHECK(bandwidth("all_reduce", 8, 100, 1).bus == 0);
  CHECK(bandwidth("barrier", 0, 0, 4).algorithm == 0);
}

namespace {

// What every rank counts after `work` made its trial.
std::vector<int64_t> wrong(int ranks, const TrialSpec& spec,
                           const std::function<void(CollectiveTrial&, int rank)>& work) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  run_ranks(
      ranks,
      [&](Communicator& comm) {
        Rank rank(comm);
        CollectiveTrial trial(spec, comm, rank.memory);
        trial.fill();
        work(trial, comm.rank());
        counts[size_t(comm.rank())] = trial.wrong();
      },
      within(std::chrono::seconds(20)));
  return counts;
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t(0));
}

void spoil(CollectiveTrial& trial, int64_t element) {
  kernel::fill(kernel::download_floats(trial.result().slice(element, {1}))[0] + 1,
               trial.result().slice(element, {1}));
}

}  // namespace

TEST_CASE("a trial counts no value wrong that is right, and each one that is not", "[dist]") {
  const Collective kind =
      GENERATE(Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
               Collective::broadcast, Collective::all_to_all, Collective::send);
  const Dtype dtype = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  const int ranks = GENERATE(1, 2, 3);
  if (kind == Collective::send && ranks == 1) return;
  CAPTURE(name(kind), name(dtype), ranks);
  const TrialSpec spec{kind, 60, dtype};
  CHECK(total(wrong(ranks, spec, [](CollectiveTrial& t, int) { t.call(); })) == 0);
  const auto spoilt = wrong(ranks, spec, [&](CollectiveTrial& t, int rank) {
    t.call();
    for (int64_t i = 0; i <= rank; ++i)
      spoil(t, rank * (60 / ranks) + i);  // in its own slice, which is the result of each kind
  });
  for (int r = 0; r < ranks; ++r) CHECK(spoilt[size_t(r)] == r + 1);
  if (ranks > 1)
    CHECK(total(wrong(ranks, spec, [](CollectiveTrial&, int) {})) > 0);  // nothing was called
}

TEST_CASE("a trial that was cleared stays zero however often it is timed, and takes some time",
          "[dist]") {
  std::vector<double> values(2);
  std::vector<int64_t> times(2);
  run_ranks(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        CollectiveTrial trial({Collective::all_reduce, 7, Dtype::f16}, comm, rank.memory);
        trial.fill();
        trial.clear();
        for (int i = 0; i < 30; ++i) times[size_t(comm.rank())] += trial.time();
        values[size_t(comm.rank())] = kernel::download_floats(trial.result())[3];
      },
      within(std::chrono::seconds(20)));
  CHECK(values == std::vector<double>{0, 0});
  for (const int64_t time : times) CHECK(time > 0);
}

TEST_CASE("a trial of nothing, or of a rank that sends to itself, is refused", "[dist]") {
  EventStream events;
  Memory memory({}, cpu_backend(), events);
  run_ranks(1, [&](Communicator& comm) {
    CHECK_THROWS_AS(CollectiveTrial({Collective::all_reduce, 0, Dtype::f32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::all_reduce, 4, Dtype::i32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::barrier, 4, Dtype::f32}, comm, memory),
                    std::invalid_argument);
    CHECK_THROWS_AS(CollectiveTrial({Collective::send, 4, Dtype::f32}, comm, memory),
                    std::invalid_argument);
  });
}
