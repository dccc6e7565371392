// Calls that a lane carries out, when a rank fails, drops a Work, comes late or calls something
// else: all ranks return, and say what ranks without lanes say.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <thread>

#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a Work that a rank with a lane drops is reported as without", "[dist]") {
  const bool last = GENERATE(false, true);  // in the last call
  const auto body = [&](Communicator& comm) {
    Rank rank(comm);
    {
      Work work = comm.all_reduce(rank.filled(8, float(comm.rank())), Reduction::sum,
                                  {"lost", Purpose::norm});
      if (comm.rank() != 0) work.wait();
    }
    if (!last) comm.barrier(kName).wait();
  };
  const Outcome without = outcome(2, body), with = outcome(2, body, lanes());
  CHECK_THAT(with.thrown, ContainsSubstring("rank 0 dropped the Work of all_reduce 'lost'"));
  CHECK(with.thrown == without.thrown);
  CHECK(with.errors == without.errors);
}

TEST_CASE("a send that a rank with a lane drops ends the run", "[dist]") {
  const Outcome result = outcome(
      2,
      [&](Communicator& comm) {
        Rank rank(comm);
        if (comm.rank() == 0) {
          { const Work dropped = comm.send(rank.filled(8, 1), 1, {"lost", Purpose::check}); }
        }
        comm.barrier(kName).wait();
      },
      lanes());
  CHECK_THAT(result.thrown, ContainsSubstring("rank 0 dropped the Work of send 'lost'"));
}

TEST_CASE("a rank that throws with calls in flight ends all ranks, and keeps no memory", "[dist]") {
  const int ranks = GENERATE(1, 2, 3, 5);
  const auto timeout = GENERATE(0ms, 20000ms);
  for (int bad = 0; bad < ranks; ++bad) {
    std::vector<int64_t> live(size_t(ranks), -1);
    const Outcome result = outcome(
        ranks,
        [&](Communicator& comm) {
          Rank rank(comm);
          try {
            const int n = comm.size(), next = (comm.rank() + 1) % n,
                      before = (comm.rank() + n - 1) % n;
            Work sum = comm.all_reduce(rank.filled(1013, 1), Reduction::sum, kName),
                 gathered = comm.all_gather(rank.filled(64 * n, 1), kName),
                 received = comm.receive(rank.empty(9), before, kName);
            if (comm.rank() == bad) throw std::out_of_range("it broke");
            Work sent = comm.send(rank.filled(9, 1), next, kName);
            received.wait();  // from `bad`, which does not send
            sent.wait();
            gathered.wait();
            sum.wait();
            comm.barrier(kName).wait();
          } catch (...) {
            live[size_t(comm.rank())] = rank.memory.ledger().live(MemoryUse::gradient);
            throw;
          }
        },
        lanes(timeout));
    CAPTURE(ranks, bad, timeout.count());
    CHECK(result.thrown == "it broke");
    CHECK(live == std::vector<int64_t>(size_t(ranks), 0));
    for (int r = 0; r < ranks; ++r)
      if (r != bad)
        CHECK_THAT(result.errors[size_t(r)], ContainsSubstring(str("rank ", bad, " stopped: ")));
    CHECK(result.took < 5s);
  }
}

TEST_CASE("a listener that throws at any event of a call in flight ends all ranks", "[dist]") {
  const EventKind moment =
      GENERATE(EventKind::collective_begin, EventKind::collective_wait, EventKind::collective_met,
               EventKind::collective_moved, EventKind::collective_end);
  const Outcome result = outcome(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        if (comm.rank() == 1)
          comm.events().listen([&](const Event& event) {
            if (event.kind == moment) throw std::out_of_range("it broke inside");
          });
        const Tensor a = rank.filled(30, 1), b = rank.filled(30, 1);
        Work first = comm.all_reduce(a, Reduction::sum, kName), second = comm.all_gather(b, kName);
        second.wait();
        first.wait();
        comm.barrier(kName).wait();
      },
      lanes());
  CAPTURE(name(moment));
  CHECK(result.thrown == "it broke inside");
  CHECK(result.took < 5s);
}

TEST_CASE("no lane uses tensors that are freed, whenever a rank fails", "[dist]") {
  std::mt19937 random(3);  // AddressSanitizer and ThreadSanitizer look at this one
  for (int i = 0; i < (kThreadSanitizer ? 20 : 100); ++i) {
    const int ranks = 2 + int(random() % 3), bad = int(random() % uint32_t(ranks)),
              at = int(random() % 12);
    const int64_t delay = int64_t(random() % 20000);
    CAPTURE(i, ranks, bad, at, delay);
    const Outcome result = outcome(
        ranks,
        [&](Communicator& comm) {
          Rank rank(comm);
          for (int k = 0;; ++k) {
            const Tensor t = rank.filled(4096 * ranks, 1);
            Work sum = comm.all_reduce(t, Reduction::mean, kName);
            const Tensor other = rank.empty(t.numel());
            Work sent = comm.send(other, (comm.rank() + 1) % ranks, kName);
            if (comm.rank() == bad && k == at) {
              for (volatile int64_t spun = 0; spun < delay;) spun = spun + 1;
              throw std::runtime_error("it broke");
            }
            const Tensor third = rank.empty(t.numel());
            Work received = comm.receive(third, (comm.rank() + ranks - 1) % ranks, kName);
            if (comm.rank() == bad && k + 1 == at) throw std::runtime_error("it broke");
            received.wait();
            sum.wait();
            sent.wait();
          }
        },
        lanes());
    CHECK(result.thrown == "it broke");
  }
}

TEST_CASE("lanes report different calls and missing ranks in the words of ranks without",
          "[dist]") {
  const auto different = [](Communicator& comm) {
    Rank rank(comm);
    comm.barrier({"start", Purpose::check}).wait();
    const int64_t count = comm.rank() == 2 ? 9 : 8;
    comm.all_reduce(rank.filled(count, 1), Reduction::sum, kName).wait();
  };
  const Outcome mixed = outcome(3, different, lanes());
  CHECK(mixed.errors == outcome(3, different).errors);
  CHECK(mixed.all_failed());
  CHECK_THAT(mixed.errors[0],
             ContainsSubstring("of 9 f32 elements") && ContainsSubstring(kName.text.data()));

  const auto gone = [](Communicator& comm) {
    Rank rank(comm);
    comm.barrier({"start", Purpose::check}).wait();
    if (comm.rank() == 1) return;
    comm.all_reduce(rank.filled(8, 1), Reduction::sum, kName).wait();
  };
  const Outcome ended = outcome(3, gone, lanes());
  CHECK_THAT(ended.thrown, ContainsSubstring("rank 1 has ended") &&
                               ContainsSubstring("barrier 'start' (call 1)"));
  CHECK(ended.took < 5s);
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
