// A rank's process dies or stops at a random time: the others end in time, say who, and leave
// nothing behind.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstdio>

#include "tensor/random.h"
#include "tests/dist/split_calls.h"
#include "tests/nccl/processes/process_ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kRanks = 4;
constexpr auto kTimeout = 1s;

// Steps without end: calls of every kind, with work between them; from the third step on they are
// compared only on timeout.
void train_forever(Communicator& comm, int die_at) {
  Rank rank(comm);
  const Tensor t = rank.filled(kRanks * 500, float(comm.rank()));
  for (int step = 0;; ++step) {
    if (step == die_at) std::_Exit(7);
    comm.reduce_scatter(t, Reduction::mean, {"gradient", Purpose::gradient}).wait();
    std::this_thread::sleep_for(2ms);
    comm.all_gather(t, {"parameter", Purpose::parameter}).wait();
    comm.all_reduce(t.slice(0, {9}), Reduction::mean, {"loss", Purpose::loss}).wait();
    if (step % 5 == 4) (void)comm.all_gather_object("checkpoint", "checkpoint");
    if (step == 2) comm.compare_calls_only_on_timeout();
  }
}

// What is done to one of the ranks; and it is said of it by the others.
struct Fault1 {
  enum class Kind { kill, stop, exit } kind;
  int rank;
  std::chrono::milliseconds when;
  Deaths deaths;
};

Fault1 fault(uint64_t number) {
  const PhiloxStream random{2026, number};
  const auto kind = Fault1::Kind(int(random.uniform(0) * 3));
  return {kind, int(random.uniform(1) * kRanks),
          std::chrono::milliseconds(int(random.uniform(2) * 400)),
          random.uniform(3) < 0.5 ? Deaths::noticed : Deaths::unnoticed};
}

// Returns how long after the fault the last of the others ended.
std::chrono::milliseconds survive(const Fault1& f) {
  const bool exits = f.kind == Fault1::Kind::exit;
  const ProcessRanks run{.size = kRanks, .timeout = kTimeout, .deaths = f.deaths};
  const int die_at = int(f.when.count() / 10);
  Processes ranks(kRanks, rank_process(run, [&](Communicator& comm, const Processes::Say&) {
                    train_forever(comm, exits && comm.rank() == f.rank ? die_at : -1);
                  }));
  auto at = f.when;
  if (!exits) {
    (void)ranks.watch(f.when);
    ranks.signal(f.rank, f.kind == Fault1::Kind::kill ? SIGKILL : SIGSTOP);
  }
  (void)ranks.watch(kTimeout + 1s);
  ranks.signal(f.rank, SIGKILL);  // a stopped one; nothing if it has ended
  const auto ends = ranks.wait(2s);
  if (exits) at = ends[size_t(f.rank)].after;
  std::chrono::milliseconds last{0};
  for (int r = 0; r < kRanks; ++r) {
    const ProcessEnd& end = ends[size_t(r)];
    if (r == f.rank) continue;
    CAPTURE(r, describe(end));
    CHECK_FALSE(end.overdue);
    CHECK(end.code == kCommunication);
    CHECK_THAT(end.said, ContainsSubstring(str("rank ", f.rank)));
    last = std::max(last, end.after - at);
  }
  CHECK(left_no_port(run));
  return last;
}

void survive_all(uint64_t first, uint64_t last) {
  require_forks();
  std::chrono::milliseconds slowest{0};
  for (uint64_t i = first; i < last; ++i) {
    const Fault1 f = fault(i);
    CAPTURE(i, int(f.kind), f.rank, f.when.count(), f.deaths == Deaths::noticed);
    const auto took = survive(f);
    CHECK(took <= kTimeout + 1s);
    slowest = std::max(slowest, took);
  }
  std::printf(
      "%d faults survived; the slowest return %lld ms after the fault, with a timeout of %lld ms\n",
      int(last - first), (long long)slowest.count(),
      (long long)std::chrono::milliseconds(kTimeout).count());
}

}  // namespace

TEST_CASE("a process that is killed, stopped or exits at a random time ends the others in time",
          "[nccl]") {
  survive_all(0, 6);
}

TEST_CASE("the same 100 times", "[.faults]") { survive_all(0, 100); }

TEST_CASE("a process that dies in one group ends those that are in another", "[nccl]") {
  require_forks();
  const GroupCase dies{
      "", [](Communicator& comm, Communicator& intra, Communicator& inter, Rank& rank) {
        const Tensor t = rank.filled(8, 1);
        if (comm.rank() == 2) ::kill(::getpid(), SIGKILL);
        (comm.rank() < 2 ? intra : inter).all_reduce(t, Reduction::sum, kName).wait();
        (comm.rank() < 2 ? inter : intra).all_reduce(t, Reduction::sum, kName).wait();
      }};
  const auto ends = run_as_processes({.size = 4}, [&](Communicator& comm, const Processes::Say&) {
    Rank rank(comm);
    run_group_case(dies, rank);
  });
  for (const int r : {0, 1, 3}) {
    CHECK(ends[size_t(r)].code == kCommunication);
    CHECK_THAT(ends[size_t(r)].said, ContainsSubstring("rank 2 has died"));
  }
}
