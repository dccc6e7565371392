// The log counts what the formulas say, on threads and in a dry run; the events show which
// rank waited.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "dist/ordered/meta_communicator.h"
#include "tests/dist/ranks.h"
#include "tests/tensor/kept_events.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

using Rows = CommunicationLog::Rows;

// One of everything; 48 elements can be divided by 1, 2, 3 and 8.
void one_of_everything(Communicator& comm, Memory& memory) {
  const auto tensor = [&](Dtype dtype) {
    return Tensor::empty(memory, MemoryUse::gradient, {48}, dtype);
  };
  const int next = (comm.rank() + 1) % comm.size(),
            last = (comm.rank() + comm.size() - 1) % comm.size();
  const Tensor f32 = tensor(Dtype::f32), bf16 = tensor(Dtype::bf16), other = tensor(Dtype::f32);
  comm.begin_group();
  comm.all_reduce(f32, Reduction::mean, {"a", Purpose::gradient}).wait();
  comm.all_reduce(bf16, Reduction::mean, {"b", Purpose::gradient}).wait();
  comm.end_group();
  comm.all_reduce(f32.slice(0, {1}), Reduction::sum, {"norm", Purpose::norm}).wait();
  comm.reduce_scatter(f32, Reduction::mean, {"c", Purpose::gradient}).wait();
  comm.all_gather(bf16, {"d", Purpose::parameter}).wait();
  comm.broadcast(f32, 0, {"e", Purpose::parameter}).wait();
  comm.all_to_all(f32, other, {"f", Purpose::check}).wait();
  comm.barrier({"g", Purpose::check}).wait();
  Work sent = comm.send(f32, next, {"h", Purpose::check});
  comm.receive(other, last, {"h", Purpose::check}).wait();
  sent.wait();
}

Rows expected_rows(int n) {
  Rows rows = {
      {{Collective::all_reduce, Purpose::gradient}, {2, 96, 2 * (n - 1) * (192 + 96)}},
      {{Collective::all_reduce, Purpose::norm}, {1, 1, 2 * (n - 1) * 4}},
      {{Collective::reduce_scatter, Purpose::gradient}, {1, 48, (n - 1) * 192}},
      {{Collective::all_gather, Purpose::parameter}, {1, 48, (n - 1) * 96}},
      {{Collective::broadcast, Purpose::parameter}, {1, 48, (n - 1) * 192}},
      {{Collective::all_to_all, Purpose::check}, {1, 48, (n - 1) * 192}},
      {{Collective::barrier, Purpose::check}, {1, 0, 0}},
      {{Collective::send, Purpose::check}, {1, 48, n * 192}},
      {{Collective::receive, Purpose::check}, {1, 48, 0}},
  };
  for (auto& [key, traffic] : rows) traffic.ranks = n;
  return rows;
}

struct Noted {
  EventKind kind;
  std::string what, detail;
  int64_t bytes, count;
  bool operator==(const Noted&) const = default;
};

// The collective events, without times.
std::vector<Noted> seen(const std::vector<Event>& events) {
  std::vector<Noted> all;
  for (const Event& e : events)
    if (e.kind == EventKind::collective_begin || e.kind == EventKind::collective_met ||
        e.kind == EventKind::collective_end)
      all.push_back({e.kind, e.what, e.detail, e.bytes, e.count});
  return all;
}

}  // namespace

TEST_CASE("the log counts calls, elements and bytes by the ring formulas", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 8);
  CAPTURE(ranks);
  std::vector<Rows> rows(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Rank rank(comm);
    one_of_everything(comm, rank.memory);
    rows[size_t(comm.rank())] = comm.log().rows();
  });
  for (const Rows& r : rows) CHECK(r == expected_rows(ranks));
  CHECK(rows[0] != expected_rows(ranks + 1));
}

TEST_CASE("a dry run logs and records what threads do, on any rank of any size", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 8);
  const int which = GENERATE(0, 1) * (ranks - 1);
  CAPTURE(ranks, which);
  EventStream events(which);
  const auto of_dry_run = keep_events(events);
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  const auto comm = meta_communicator(which, ranks, events);
  CHECK(comm->rank() == which);
  CHECK(comm->size() == ranks);
  one_of_everything(*comm, memory);
  CHECK(comm->log().rows() == expected_rows(ranks));
  std::vector<Noted> on_threads;
  run_ranks(ranks, [&](Communicator& c) {
    Rank rank(c);
    const auto kept = keep_events(c.events());
    one_of_everything(c, rank.memory);
    if (c.rank() == which) on_threads = seen(*kept);
  });
  // A send on threads may be met only when it is waited for, so the last events come in another
  // order.
  const size_t comparable = on_threads.size() - 6;
  auto dry = seen(*of_dry_run);
  REQUIRE(dry.size() == on_threads.size());
  dry.resize(comparable), on_threads.resize(comparable);
  CHECK(dry == on_threads);
}

TEST_CASE("a dry run of 1,024 ranks checks its arguments", "[dist]") {
  EventStream events;
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  const auto comm = meta_communicator(1023, 1024, events);
  const Tensor t = Tensor::empty(memory, MemoryUse::parameter, {int64_t(1) << 36}, Dtype::bf16);
  comm->all_gather(t, {"all of it", Purpose::parameter}).wait();
  const Traffic& row = comm->log().rows().at({Collective::all_gather, Purpose::parameter});
  CHECK(row.sent_bytes_times_n / 1024 == (int64_t(1) << 37) / 1024 * 1023);
  CHECK_THROWS_WITH(comm->reduce_scatter(t.slice(0, {1000}), Reduction::sum, kName).wait(),
                    ContainsSubstring("pad to 1024"));
  CHECK_THROWS_WITH(comm->broadcast(t, 1024, kName).wait(),
                    ContainsSubstring("rank 1024 is out of range"));
  CHECK_THROWS_AS(meta_communicator(4, 4, events), std::invalid_argument);
  CHECK_THROWS_AS(meta_communicator(0, 0, events), std::invalid_argument);
}

TEST_CASE("threads say that they cannot exchange what the host cannot read", "[dist]") {
  std::string text;
  run_ranks(1, [&](Communicator& comm) {
    Memory memory({DeviceKind::meta}, meta_backend(), comm.events());
    try {
      comm.all_reduce(Tensor::empty(memory, MemoryUse::gradient, {4}), Reduction::sum, kName)
          .wait();
    } catch (const std::invalid_argument& error) {
      text = error.what();
    }
  });
  CHECK_THAT(text, ContainsSubstring("all_reduce 'h.1 gradient'") && ContainsSubstring("on meta"));
}

TEST_CASE("every call is three events: begin with its bytes, met, end with those that it sent",
          "[dist]") {
  std::vector<Noted> events;
  run_ranks(3, [&](Communicator& comm) {
    Rank rank(comm);
    const auto kept = keep_events(comm.events());
    comm.reduce_scatter(rank.filled(48, 1), Reduction::sum, {"h.3 gradient", Purpose::gradient})
        .wait();
    if (comm.rank() == 2) events = seen(*kept);
  });
  CHECK(events ==
        std::vector<Noted>{{EventKind::collective_begin, "reduce_scatter", "h.3 gradient", 192, 48},
                           {EventKind::collective_met, "reduce_scatter", "h.3 gradient", 0, 48},
                           {EventKind::collective_end, "reduce_scatter", "h.3 gradient", 128, 48}});
}

TEST_CASE("the log's times say which rank was late: it waits least, the others for it", "[dist]") {
  constexpr int64_t late = 40'000'000;  // [ns]
  std::vector<std::map<Collective, TimeSpent>> times(3);
  std::vector<TimeSpent> totals(3);
  std::atomic<int> others = 0;  // ranks that are at the call
  run_ranks(3, [&](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(48, 1);
    comm.barrier({"start", Purpose::check}).wait();
    comm.log().clear();
    if (comm.rank() == 1) {  // the machine may be loaded: late is later than the others, not a time
      while (others < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::nanoseconds(late));
    } else {
      ++others;
    }
    comm.all_reduce(t, Reduction::sum, kName).wait();
    comm.all_gather(t, kName).wait();
    times[size_t(comm.rank())] = comm.log().times();
    totals[size_t(comm.rank())] = comm.log().total_time();
  });
  const auto spent = [&](int rank) { return times[size_t(rank)].at(Collective::all_reduce); };
  for (const int rank : {0, 1, 2}) {
    const TimeSpent reduce = spent(rank), gather = times[size_t(rank)].at(Collective::all_gather),
                    total = totals[size_t(rank)];
    CAPTURE(rank, reduce.waited, reduce.nanoseconds);
    CHECK(times[size_t(rank)].size() == 2);  // the barrier was cleared away
    CHECK((reduce.calls == 1 && gather.calls == 1 && total.calls == 2));
    CHECK(reduce.waited <= reduce.nanoseconds);
    CHECK(total.nanoseconds == reduce.nanoseconds + gather.nanoseconds);
    CHECK(total.waited == reduce.waited + gather.waited);
  }
  CHECK(spent(0).waited - spent(1).waited > late / 2);
  CHECK(spent(2).waited - spent(1).waited > late / 2);
}

TEST_CASE("the report keeps the last calls of every rank", "[dist]") {
  const Outcome result = outcome(2, [](Communicator& comm) {
    for (int i = 0; i < 1500; ++i) comm.barrier({"step", Purpose::check}).wait();
    if (comm.rank() == 1) throw std::runtime_error("it broke");
    comm.barrier({"never", Purpose::check}).wait();
  });
  CHECK(result.thrown == "it broke");
  CHECK_THAT(last_failure_report(), ContainsSubstring("rank 1 stopped: it broke") &&
                                        ContainsSubstring("rank 1: 1500 calls") &&
                                        ContainsSubstring("barrier 'step' (call 1500): done in"));
}
