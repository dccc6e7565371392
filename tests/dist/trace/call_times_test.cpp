// The times of calls, from events whose times are known and from real ranks, and the tables made of
// them.
// The trials of bench comm: right results have no wrong value, and each wrong one is counted.

#include "dist/trace/call_times.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>
#include <tuple>

#include "dist/trace/collective_trial.h"
#include "tensor/kernels.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Event event(int64_t microseconds, EventKind kind, const char* what, const char* name,
            int64_t bytes = 0) {
  return {.nanoseconds = microseconds * 1000,
          .kind = kind,
          .what = what,
          .detail = name,
          .bytes = bytes};
}

// A call from `from` to `to` [µs] in which the last rank arrived at `met`.
void see(CallTimes& times, const char* what, const char* name, int64_t bytes,
         std::array<int64_t, 3> from_met_to) {
  times.see(event(from_met_to[0], EventKind::collective_begin, what, name, bytes));
  times.see(event(from_met_to[1], EventKind::collective_met, what, name));
  times.see(event(from_met_to[2], EventKind::collective_end, what, name, bytes / 2));
}

constexpr const char *kA = "h.0 gradient", *kB = "h.1 gradient";

}  // namespace

TEST_CASE("calls are kept by kind and size, in order, and reported as they end", "[dist]") {
  std::vector<std::string> reported;
  CallTimes times(collective_names(),
                  [&](const CallSpan& call) { reported.push_back(call_line(call, 2, true)); });
  see(times, "all_reduce", kA, 4000, {100, 150, 300});
  see(times, "all_reduce", kB, 4000, {400, 400, 500});
  see(times, "all_reduce", kB, 8, {600, 601, 602});
  CHECK(times.calls() ==
        std::map<CallTimes::Key, std::vector<int64_t>>{{{"all_reduce", 8}, {2000}},
                                                       {{"all_reduce", 4000}, {200'000, 100'000}}});
  REQUIRE(reported.size() == 3);
  // 4000 B in 200 µs are 32,000 bits in 200,000 ns: 0.16 Gbit/s; 2(N-1)/N is 1 for two ranks.
  CHECK(reported[0] ==
        "comm op: all_reduce | time (ms): 0.200 | msg size: 3.9 KiB | algbw (Gbps): 0.16 | busbw "
        "(Gbps): 0.16"
        " | name: h.0 gradient | waited (ms): 0.050");
  CHECK(call_line({.kind = "all_gather", .name = "x", .bytes = 8, .moved = 64}, 4, false) ==
        "comm op: all_gather | time (ms): 0.000 | msg size: 8 B | algbw (Gbps): 1.00 | busbw "
        "(Gbps): 0.75");
}

TEST_CASE("only the chosen kinds are kept, and a call that was begun before counts nowhere",
          "[dist]") {
  CallTimes times({"all_gather"});
  times.see(event(1, EventKind::collective_end, "all_gather", kA));
  see(times, "all_reduce", kA, 8, {2, 3, 4});
  see(times, "all_gather", kA, 8, {5, 6, 9});
  CHECK(times.calls() ==
        std::map<CallTimes::Key, std::vector<int64_t>>{{{"all_gather", 8}, {4000}}});
}

TEST_CASE("calls of a group are under way together and keep their own times", "[dist]") {
  CallTimes times(collective_names());
  times.see(event(0, EventKind::collective_begin, "send", kA, 8));
  times.see(event(10, EventKind::collective_begin, "receive", kA, 8));
  times.see(event(40, EventKind::collective_end, "receive", kA));
  times.see(event(60, EventKind::collective_end, "send", kA));
  CHECK(times.calls().at({"send", 8}) == std::vector<int64_t>{60'000});
  CHECK(times.calls().at({"receive", 8}) == std::vector<int64_t>{30'000});
}

TEST_CASE("a call in flight takes until its data has moved, however late the rank waits",
          "[dist]") {
  const bool on_lane = GENERATE(true, false);  // the twin: who does not say so, moves until the end
  CallTimes times(collective_names());
  times.see(event(100, EventKind::collective_begin, "all_gather", kA, 64));
  times.see(event(200, EventKind::collective_begin, "all_gather", kB, 64));
  for (const auto& [name, met, moved] : {std::tuple(kB, 300, 310), std::tuple(kA, 120, 150)}) {
    times.see(event(400, EventKind::collective_wait, "all_gather", name));
    times.see(event(met, EventKind::collective_met, "all_gather", name));
    if (on_lane) times.see(event(moved, EventKind::collective_moved, "all_gather", name));
    times.see(event(500, EventKind::collective_end, "all_gather", name, 32));
  }
  CHECK(times.calls().at({"all_gather", 64}) ==
        (on_lane ? std::vector<int64_t>{110'000, 50'000} : std::vector<int64_t>{300'000, 400'000}));
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

TEST_CASE("averages leave out a tenth at either end, rounded as Python rounds", "[dist]") {
  CHECK(trimmed_mean({}) == 0);
  CHECK(trimmed_mean({7}) == 7);
  CHECK(trimmed_mean({100, 1, 1, 1, 1}) == 20.8);                           // 0.5 rounds to 0
  CHECK(trimmed_mean({900, 2, 2, 2, 2, 2, 2, 2, 2, -900}) == 2);            // 1 of 10
  CHECK(trimmed_mean({9, 8, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1, 2}) == 3);  // 1.5 rounds to 2
}

TEST_CASE("the table says each size below its kind, and who waited for whom", "[dist]") {
  CallTimes own(collective_names()), other(collective_names());
  see(own, "all_reduce", kA, 4000, {0, 150, 200});
  see(own, "all_reduce", kB, 4000, {300, 310, 400});
  see(own, "all_gather", kA, 8'000'000, {500, 500, 1500});
  see(other, "all_reduce", kA, 4000, {150, 150, 200});
  see(other, "all_reduce", kB, 4000, {310, 310, 400});
  see(other, "all_gather", kA, 8'000'000, {500, 500, 1500});
  const std::string text = call_table({own.calls(), other.calls()});
  // Columns are 20 wide.
  CHECK_THAT(text, ContainsSubstring("\nComm. Op            Message Size        Count              "
                                     " Total Latency(ms)   Avg Latency(ms)     "
                                     "tput_avg (Gbps)     busbw_avg (Gbps)\n"
                                     "all_gather\n"
                                     "                    7.6 MiB             1                   "
                                     "1.000               1.000               "
                                     "64.00               32.00\n"
                                     "all_reduce\n"
                                     "                    3.9 KiB             2                   "
                                     "0.300               0.150               "
                                     "0.24                0.24\n"
                                     "_______________________________\n"
                                     "Breakdown with straggler effect\n"
                                     "-------------------------------\n"));
  // The other rank took 50 and 90 µs of the two; rank 0's 200 and 100 µs are 150 and 10 µs more.
  CHECK_THAT(text, ContainsSubstring("all_gather\n"
                                     "                    7.6 MiB             1                   "
                                     "1.000               0.000               "
                                     "1.000               0.000\n"
                                     "all_reduce\n"
                                     "                    3.9 KiB             2                   "
                                     "0.140               0.160               "
                                     "0.070               0.080\n"));
  CHECK_THAT(text, ContainsSubstring("nccl-tests"));
  CHECK_THAT(call_table({own.calls()}), !ContainsSubstring("straggler"));
  CHECK_THAT(call_table({CallTimes::Calls()}), ContainsSubstring("made no call"));
}

TEST_CASE("names that DeepSpeed's users know mean our collectives", "[dist]") {
  CHECK(collective_names().size() == 8);
  for (const std::string& name : collective_names()) CHECK(our_collective(name) == name);
  CHECK(our_collective("all_gather_into_tensor") == "all_gather");
  CHECK(our_collective("reduce_scatter_tensor") == "reduce_scatter");
  CHECK(our_collective("custom_all_reduce_name").empty());
  CHECK(our_collective("?").empty());
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
