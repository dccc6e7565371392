// A rank throws, ends, comes late or gets stuck: all others return, with a message that says who
// and where.
#include <pthread.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <thread>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"
#include "tests/dist/own_process.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

// Six calls of different kinds; `before` and `after` run around call `at`.
void six_calls(Rank& rank, int at, const std::function<void()>& before,
               const std::function<void()>& after) {
  Communicator& comm = rank.comm;
  const int n = comm.size();
  const Tensor a = rank.filled(32 * n, 1), b = rank.filled(32 * n, 2);
  for (int i = 0; i < 6; ++i) {
    if (i == at) before();
    if (i == 0) comm.all_reduce(a, Reduction::mean, kName).wait();
    if (i == 1) comm.reduce_scatter(a, Reduction::mean, kName).wait();
    if (i == 2) comm.all_gather(a, kName).wait();
    if (i == 3) comm.broadcast(a, 0, kName).wait();
    if (i == 4) comm.all_to_all(a, b, kName).wait();
    if (i == 5) comm.barrier(kName).wait();
    if (i == at) after();
  }
}

void spin(int64_t times) {
  for (volatile int64_t i = 0; i < times;) i = i + 1;
}

}  // namespace

TEST_CASE("a rank that throws before or after any call ends all ranks with its error", "[dist]") {
  const int ranks = GENERATE(1, 2, 4);
  const bool before = GENERATE(true, false);
  for (int bad = 0; bad < ranks; ++bad)
    for (int at = 0; at < 6; ++at) {
      CAPTURE(ranks, bad, at, before);
      const Outcome result = outcome(ranks, [&](Communicator& comm) {
        Rank rank(comm);
        const auto fail = [&] {
          if (comm.rank() == bad) throw std::out_of_range("it broke");
        };
        const auto nothing = [] {};
        before ? six_calls(rank, at, fail, nothing) : six_calls(rank, at, nothing, fail);
      });
      CHECK(result.thrown == "it broke");
      for (int r = 0; r < ranks; ++r) {
        const bool ends_well =
            r == bad || (at == 5 && !before);  // nothing comes after the last call
        if (ends_well)
          CHECK(result.errors[size_t(r)] == "");
        else
          CHECK_THAT(result.errors[size_t(r)],
                     ContainsSubstring(str("rank ", bad, " stopped: it broke")));
      }
      CHECK(result.took < 5s);
    }
}

TEST_CASE("a rank that throws inside any call ends all ranks with its error", "[dist]") {
  const bool lane = GENERATE(false, true);
  const EventKind moment =
      GENERATE(EventKind::collective_begin, EventKind::collective_wait, EventKind::collective_met,
               EventKind::collective_moved, EventKind::collective_end);
  if (!lane && (moment == EventKind::collective_wait || moment == EventKind::collective_moved))
    return;
  for (int bad = 0; bad < 3; ++bad)
    for (int at = 0; at < 8; ++at) {
      CAPTURE(lane, bad, at, name(moment));
      const auto body = [&](Communicator& comm) {
        Rank rank(comm);
        int calls = 0;
        if (comm.rank() == bad)
          comm.events().listen([&](const Event& event) {
            if (event.kind == moment && calls++ == at) throw std::out_of_range("it broke inside");
          });
        six_calls(rank, -1, {}, {});
        const Tensor a = rank.filled(30, 1), b = rank.filled(30, 1);
        Work first = comm.all_reduce(a, Reduction::sum, kName), second = comm.all_gather(b, kName);
        second.wait();
        first.wait();
        comm.barrier(kName).wait();  // so that even the last call is followed by another
      };
      const Outcome result = outcome(3, body, lane ? lanes() : within(20s));
      CHECK(result.thrown == "it broke inside");
      // What was in flight says that it was, and not why.
      const std::string why = str("rank ", bad, " stopped: ", lane ? "" : "it broke inside");
      for (int r = 0; r < 3; ++r)
        if (r != bad) CHECK_THAT(result.errors[size_t(r)], ContainsSubstring(why));
      CHECK(result.took < 5s);
    }
}

TEST_CASE("the type of the first error is kept", "[dist]") {
  const auto run = [](const std::function<void()>& fail) {
    run_ranks(3, [&](Communicator& comm) {
      Rank rank(comm);
      if (comm.rank() == 1) fail();
      comm.barrier(kName).wait();
    });
  };
  CHECK_THROWS_AS(run([] { throw OutOfMemory("no room", 1, Pool::device, "backward", "h.2", 64); }),
                  OutOfMemory);
  CHECK_THROWS_AS(run([] { throw InputError("bad file"); }), InputError);
  CHECK_THROWS_AS(run([] { throw 42; }), int);
  CHECK_NOTHROW(run([] {}));
}

TEST_CASE("a rank that ends early is an error at once on those that wait for it", "[dist]") {
  const int ranks = GENERATE(2, 4);
  const bool late = GENERATE(false, true);
  for (int gone = 0; gone < ranks; ++gone) {
    CAPTURE(ranks, gone, late);
    const Outcome result = outcome(ranks, [&](Communicator& comm) {
      Rank rank(comm);
      comm.barrier({"start", Purpose::check}).wait();
      if (comm.rank() == gone) {
        if (late) std::this_thread::sleep_for(20ms);
        return;
      }
      if (!late) std::this_thread::sleep_for(20ms);
      comm.all_reduce(rank.filled(8, 1), Reduction::sum, kName).wait();
    });
    CHECK_THAT(result.thrown, ContainsSubstring(str("rank ", gone, " has ended")) &&
                                  ContainsSubstring("barrier 'start' (call 1)"));
    for (int r = 0; r < ranks; ++r) CHECK((result.errors[size_t(r)] == "") == (r == gone));
    CHECK(result.took < 5s);
  }
}

TEST_CASE("all ranks that wait for one that has ended are named, and none called something else",
          "[dist]") {
  const bool lane = GENERATE(false, true);
  const auto said = [&](bool apart) {
    const Outcome result = outcome(
        4,
        [&](Communicator& comm) {
          Rank rank(comm);
          const Tensor t = rank.filled(8, 1);
          comm.barrier({"start", Purpose::check}).wait();
          if (comm.rank() == 1) return std::this_thread::sleep_for(300ms);  // the others come
          if (comm.rank() == 3 && apart)
            comm.receive(t, 1, kName).wait();
          else
            comm.all_reduce(t, Reduction::sum, kName).wait();
        },
        lane ? lanes() : within(20s));
    for (const int r : {0, 2, 3}) CHECK(result.errors[size_t(r)] != "");
    CHECK_THAT(result.thrown, !ContainsSubstring("same calls in the same order"));
    CHECK_THAT(result.thrown,
               ContainsSubstring("rank 1 was last seen in barrier 'start' (call 1)"));
    CHECK_THAT(last_failure_report(), !ContainsSubstring("same calls in the same order"));
    return result.thrown;
  };
  CHECK_THAT(said(false),
             ContainsSubstring("rank 1 has ended, while ranks 0, 2 and 3 wait for it in "
                               "all_reduce 'h.1 gradient' of 8 f32 elements (call 2); "));
  CHECK_THAT(
      said(true),
      ContainsSubstring("ranks 0 and 2 wait for it in all_reduce 'h.1 gradient'") &&
          ContainsSubstring(
              "rank 3 waits for it in receive 'h.1 gradient' of 8 f32 elements from rank 1"));
}

TEST_CASE("a late rank is named when the deadline passes", "[dist][times]") {
  const int at = GENERATE(0, 1, 2, 3, 4, 5);
  CAPTURE(at);
  std::vector<std::chrono::steady_clock::duration> waited(3);
  const Outcome result = outcome(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        comm.events().set_phase("backward");
        comm.events().set_unit("h.2");
        comm.barrier({"start", Purpose::check}).wait();
        const auto start = std::chrono::steady_clock::now();
        try {
          six_calls(
              rank, at,
              [&] {
                if (comm.rank() == 1) std::this_thread::sleep_for(250ms);
              },
              [] {});
        } catch (const CommunicationError&) {
          waited[size_t(comm.rank())] = std::chrono::steady_clock::now() - start;
          throw;
        }
      },
      100ms);
  CHECK(waited[0] < 600ms);
  CHECK(waited[2] < 600ms);
  CHECK_THAT(result.errors[0],
             ContainsSubstring("only 2 of 3 ranks came") && ContainsSubstring("within 100 ms") &&
                 ContainsSubstring("rank 1 was last seen in") &&
                 ContainsSubstring(str("(call ", at + 1, ")")) &&
                 ContainsSubstring("phase backward, unit h.2, left it") &&
                 ContainsSubstring("raise --timeout") && !ContainsSubstring("same order"));
  CHECK(result.errors[1] != "");
  CHECK_THAT(last_failure_report(), ContainsSubstring(str("rank 1: ", at + 1, " call")) &&
                                        ContainsSubstring("now outside any call") &&
                                        ContainsSubstring("waiting for"));
}

TEST_CASE("timeout 0 waits forever, but not for a rank that throws", "[dist]") {
  const bool throws = GENERATE(false, true);
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 1 && throws) throw std::runtime_error("it broke");
    if (comm.rank() == 1) std::this_thread::sleep_for(300ms);
    comm.barrier(kName).wait();
  };
  CHECK(outcome(3, body, 0ms).thrown == (throws ? "it broke" : ""));
  CHECK((last_failure_report() == "") == !throws);
}

TEST_CASE("after a failure the same process runs ranks again", "[dist]") {
  for (int i = 0; i < 20; ++i) {
    CHECK(outcome(3, [&](Communicator& comm) {
            if (comm.rank() == i % 3) throw std::runtime_error("it broke");
            comm.barrier(kName).wait();
          }).thrown == "it broke");
    CHECK(last_failure_report() != "");
    CHECK(outcome(3, [](Communicator& comm) { comm.barrier(kName).wait(); }).thrown == "");
    CHECK(last_failure_report() == "");
  }
}

TEST_CASE("no rank frees its tensors while another or a lane uses them, whenever one fails",
          "[dist]") {
  std::mt19937 random(3);  // AddressSanitizer and ThreadSanitizer look at this one
  for (int i = 0; i < (kThreadSanitizer ? 50 : 100); ++i) {
    const int ranks = 2 + int(random() % 3), bad = int(random() % uint32_t(ranks)),
              at = int(random() % 12);
    const int64_t delay = int64_t(random() % 20000);
    CAPTURE(i, ranks, bad, at, delay);
    const auto body = [&](Communicator& comm) {
      Rank rank(comm);
      for (int k = 0;; ++k) {
        const Tensor t = rank.filled(4096 * ranks, 1), u = rank.filled(4096 * ranks, 1);
        Work sum = comm.all_reduce(u, Reduction::mean, kName),
             sent = comm.send(t, (comm.rank() + 1) % ranks, kName);
        const Tensor other = rank.empty(t.numel());
        if (comm.rank() == bad && k == at) spin(delay), throw std::runtime_error("it broke");
        Work received = comm.receive(other, (comm.rank() + ranks - 1) % ranks, kName);
        if (comm.rank() == bad && k + 1 == at) throw std::runtime_error("it broke");
        sent.wait();
        received.wait();
        sum.wait();
        comm.all_reduce(t, Reduction::mean, kName).wait();
        comm.all_gather(other, kName).wait();
      }
    };
    CHECK(outcome(ranks, body, i % 2 ? lanes() : within(20s)).thrown == "it broke");
  }
}

TEST_CASE("ranks are threads with names", "[dist]") {
  std::vector<std::string> names(3);
  run_ranks(3, [&](Communicator& comm) {
    char text[16];
    pthread_getname_np(pthread_self(), text, sizeof text);
    names[size_t(comm.rank())] = text;
  });
  CHECK(names == std::vector<std::string>{"rank 0", "rank 1", "rank 2"});
}

TEST_CASE("a number of ranks that cannot run says what can", "[dist]") {
  const auto nothing = [](Communicator&) {};
  CHECK_THROWS_AS(run_ranks(0, nothing), std::invalid_argument);
  CHECK_THROWS_WITH(run_ranks(65, nothing),
                    ContainsSubstring("up to 64") && ContainsSubstring("plan"));
}

TEST_CASE("a rank that is stuck outside any call after a failure",
          "[.stuck-rank]") {  // run by the next case
  run_ranks(2,
            [](Communicator& comm) {
              comm.barrier({"start", Purpose::check}).wait();
              if (comm.rank() == 1) std::this_thread::sleep_for(60s);
              comm.barrier({"end", Purpose::check}).wait();
            },
            {.timeout = 100ms, .grace = 100ms});
}

TEST_CASE("a stuck rank ends the process with exit code 4 and a report", "[dist]") {
  CHECK_THAT(end_of_case("[.stuck-rank]"),
             ContainsSubstring("exit code 4") &&
                 ContainsSubstring("only 1 of 2 ranks came to barrier 'end'") &&
                 ContainsSubstring("rank 0: 2 calls, has ended") &&
                 ContainsSubstring("rank 1: 1 call, now outside any call"));
}

namespace {

// A device that fails in the middle of a move: a GPU's errors come as exceptions, wherever it is
// asked.
class BrokenBackend final : public CpuBackend {
 public:
  void move_bytes(const void*, void*, int64_t) override {
    throw std::runtime_error("the device has fallen off the bus");
  }
};

}  // namespace

TEST_CASE("a device that fails while it moves data ends all ranks at once, with its own words",
          "[dist]") {
  const bool between_two = GENERATE(false, true);
  const Outcome result = outcome(
      2,
      [&](Communicator& comm) {
        BrokenBackend broken;
        EventStream events;
        Memory memory({}, broken, events);
        const Tensor t = Tensor::zeros(memory, MemoryUse::gradient, {64});
        Work work = !between_two       ? comm.all_gather(t, kName)
                    : comm.rank() == 0 ? comm.send(t, 1, kName)
                                       : comm.receive(t, 0, kName);
        work.wait();
        comm.barrier(kName).wait();
      },
      10s);
  CHECK_THAT(result.thrown, ContainsSubstring("the device has fallen off the bus"));
  if (!between_two) CHECK(result.thrown == "the device has fallen off the bus");
  CHECK(result.took < 5s);
}
