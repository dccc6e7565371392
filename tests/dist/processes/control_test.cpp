// Ranks that agree over wires, as processes do; here each is a thread with a line of its own.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <thread>

#include "dist/processes/bootstrap.h"
#include "dist/processes/call_wire.h"
#include "dist/processes/remote_control.h"
#include "dist/processes/rendezvous_host.h"
#include "tensor/error.h"
#include "tests/dist/processes/free_ports.h"

namespace zl {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr int kRanks = 3;

// One rank: its line, and what it makes of it.
struct LineRank {
  int rank;
  std::unique_ptr<RankLine> line;
  std::unique_ptr<Agreement> others;
  EventStream events{0, 64};
  int64_t sequence = 0;
  std::atomic<bool> dies{
      false};  // its line ends without a word, as that of a process that is killed

  Call call(const char* name, int64_t count = 8) {
    return {.kind = Collective::all_reduce, .count = count, .sequence = ++sequence, .name = name};
  }
  void agree(const char* name, int64_t count = 8) {
    const int64_t record = others->agree(call(name, count), events);
    others->tell(record, FlightRecord::State::done);
  }
  std::vector<std::string> exchange(const std::string& text) {
    return others->exchange(
        {.kind = Collective::barrier, .sequence = ++sequence, .name = "exchange", .patient = true},
        text, events);
  }
};

struct Outcome {
  std::string error, failure, report;
  std::chrono::milliseconds took{};
};

struct Watch {
  std::chrono::milliseconds timeout = 5s;
  int silent = -1;  // a rank that does not watch its line: to the others it is stopped
};

// Runs `body` on all ranks; each watches its line meanwhile, and until all have ended.
std::vector<Outcome> on_lines(const std::function<void(LineRank&)>& body, const Watch& how = {}) {
  const Rendezvous where{
      .address = "127.0.0.1", .port = test::free_ports(), .timeout = 10s, .interrupted = {}};
  std::vector<Outcome> outcomes(kRanks);
  std::vector<std::jthread> ranks;
  std::atomic<int> silent_until{0};  // the silent one stays until all others have ended
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      const Newcomer self{.run = "",
                          .rank = r,
                          .size = kRanks,
                          .settings = "",
                          .host = "",
                          .machine = "",
                          .gpu = ""};
      LineRank rank{.rank = r};
      if (r == 0) {
        rank.line = std::make_unique<MeetingHost>(receive_ranks(self, where, ""), how.timeout);
      } else {
        rank.line =
            std::make_unique<RemoteLine>(r, find_rank_0(self, where).connection, how.timeout);
      }
      const auto began = std::chrono::steady_clock::now();
      Outcome& outcome = outcomes[size_t(r)];
      std::atomic<bool> ended{false};
      {
        const std::jthread work([&] {
          rank.others = rank.line->agreement();
          try {
            body(rank);
          } catch (const std::exception& error) {
            outcome.error = error.what();
            if (rank.line->failure().why.empty()) rank.line->stopped({error.what(), "detail"});
          }
          rank.others.reset();
          if (r != how.silent && !rank.dies) rank.line->ended();
          ended = true;
        });
        if (r == how.silent) {
          while (silent_until < kRanks - 1) std::this_thread::sleep_for(5ms);
        } else {
          for (bool over = false; !over; std::this_thread::sleep_for(2ms))
            over = (rank.line->watch() || rank.dies) && ended;
        }
      }
      outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - began);
      outcome.failure = rank.line->failure().why;
      outcome.report = rank.line->report();
      rank.line.reset();
      if (r != how.silent) ++silent_until;
    });
  ranks.clear();
  return outcomes;
}

void require_all_fail_with(const std::vector<Outcome>& outcomes, const std::string& part,
                           int but = -1) {
  for (int r = 0; r < kRanks; ++r)
    if (r != but) CHECK_THAT(outcomes[size_t(r)].failure, ContainsSubstring(part));
}

}  // namespace

TEST_CASE("ranks agree over wires, and tell each other texts in the order of ranks", "[dist]") {
  std::vector<std::vector<std::string>> heard(kRanks);
  const auto outcomes = on_lines([&](LineRank& rank) {
    for (int i = 0; i < 20; ++i) rank.agree("gradient", 8 + i);
    heard[size_t(rank.rank)] =
        rank.exchange(std::string(size_t(100'000 * rank.rank), char('a' + rank.rank)));
    rank.agree("loss");
  });
  for (const Outcome& one : outcomes) CHECK(one.error + one.failure == "");
  for (const auto& all : heard) {
    REQUIRE(all.size() == kRanks);
    for (int r = 0; r < kRanks; ++r)
      CHECK(all[size_t(r)] == std::string(size_t(100'000 * r), char('a' + r)));
  }
}

TEST_CASE("a call that does not fit is an error on all ranks, over wires too", "[dist]") {
  const auto outcomes = on_lines([](LineRank& rank) {
    rank.agree("first");
    rank.agree("second", rank.rank == 1 ? 9 : 8);
  });
  require_all_fail_with(outcomes,
                        "rank 1 calls all_reduce 'second' of 9 f32 elements (call 2) while ranks 0 "
                        "and 2 call all_reduce 'second' of 8 f32");
  CHECK_THAT(outcomes[0].report,
             ContainsSubstring("rank 2: 2 calls") && ContainsSubstring("'first'"));
  for (int r = 0; r < kRanks; ++r)
    CHECK_THAT(outcomes[size_t(r)].error,
               ContainsSubstring(str("rank ", r, " in all_reduce 'second'")));
}

TEST_CASE("an error of one rank reaches all, with what every rank throws as its own", "[dist]") {
  for (const int culprit : {0, 2}) {
    const auto outcomes = on_lines([&](LineRank& rank) {
      rank.agree("first");
      if (rank.rank == culprit) throw std::runtime_error("the disk is full");
      rank.agree("second");
    });
    require_all_fail_with(outcomes, "the disk is full");
    CHECK(outcomes[size_t(culprit)].error == "the disk is full");
  }
}

TEST_CASE("a late rank is named when the deadline passes, over wires too", "[dist]") {
  for (const int late : {0, 1}) {
    const auto outcomes = on_lines(
        [&](LineRank& rank) {
          rank.agree("first");
          if (rank.rank == late) std::this_thread::sleep_for(1500ms);
          rank.agree("second");
        },
        {.timeout = 600ms});
    require_all_fail_with(
        outcomes,
        "only 2 of 3 ranks came to all_reduce 'second' of 8 f32 elements (call 2) within 600 ms");
    require_all_fail_with(outcomes, str("rank ", late, " was last seen in all_reduce 'first'"));
  }
}

TEST_CASE("a rank that gives no sign of life is noticed outside of any call", "[dist]") {
  for (const int silent : {0, 2}) {
    const auto outcomes = on_lines(
        [&](LineRank& rank) {
          rank.agree("first");
          const auto until = std::chrono::steady_clock::now() + 5s;  // no call
          while (rank.line->failure().why.empty() && std::chrono::steady_clock::now() < until &&
                 rank.rank != silent)
            std::this_thread::sleep_for(2ms);
        },
        {.timeout = 500ms, .silent = silent});
    require_all_fail_with(outcomes, str("rank ", silent, " has given no sign of life for "),
                          silent);
    for (int r = 0; r < kRanks; ++r)
      if (r != silent) CHECK(outcomes[size_t(r)].took < 3s);
  }
}

TEST_CASE("a rank whose process is gone is noticed at once", "[dist]") {
  for (const int dead : {0, 1}) {
    const auto outcomes = on_lines([&](LineRank& rank) {
      rank.agree("first");
      rank.dies = rank.rank == dead;
      if (!rank.dies) rank.exchange("");
    });
    for (int r = 0; r < kRanks; ++r)
      if (r != dead) CHECK(outcomes[size_t(r)].took < 4s);
    require_all_fail_with(
        outcomes, dead == 0 ? "rank 0 has" : "rank 1 has died: its process ended without a word",
        dead);
  }
}

TEST_CASE("calls that are trusted meet nobody, and what does not fit is found all the same",
          "[dist]") {
  SECTION("when one of them fails to end") {
    std::atomic<int> called{0};
    const auto outcomes = on_lines([&](LineRank& rank) {
      rank.others->trust_calls();
      for (int i = 0; i < 30; ++i) rank.agree("gradient", i == 20 && rank.rank == 2 ? 9 : 8);
      for (++called; called < kRanks;) std::this_thread::yield();
      if (rank.rank == 1) (void)rank.others->fail("the transfer was not done");
      rank.exchange("");
    });
    require_all_fail_with(
        outcomes, "rank 2 calls all_reduce 'gradient' of 9 f32 elements (call 21) while rank");
    require_all_fail_with(outcomes, "the transfer was not done");
  }
  SECTION("when one waits for all in another call") {
    for (const int other : {0, 1}) {
      const auto outcomes = on_lines([&](LineRank& rank) {
        rank.others->trust_calls();
        rank.agree("gradient");
        if (rank.rank == other) rank.exchange("");
        const auto until = std::chrono::steady_clock::now() + 4s;
        for (rank.agree("loss"); std::chrono::steady_clock::now() < until;
             std::this_thread::sleep_for(2ms))
          if (rank.others->failed()) throw CommunicationError("told");
      });
      require_all_fail_with(outcomes, str("rank ", other, " calls barrier 'exchange' (call 2)"));
      require_all_fail_with(outcomes, "calls all_reduce 'loss' of 8 f32 elements (call 2)");
    }
  }
  SECTION("and if all fits nothing is found") {
    const auto outcomes = on_lines([](LineRank& rank) {
      rank.agree("first");
      rank.others->trust_calls();
      for (int i = 0; i < 300; ++i) rank.agree("gradient");
      rank.exchange("");
      for (int i = 0; i < 300; ++i) rank.agree("gradient");
    });
    for (const Outcome& one : outcomes) CHECK(one.error + one.failure == "");
  }
}

TEST_CASE("a rank that says what no rank says is a failure, and nothing worse", "[dist]") {
  const auto hostile = [](LineMessage kind, const std::string& body) {
    const Rendezvous where{
        .address = "127.0.0.1", .port = test::free_ports(), .timeout = 10s, .interrupted = {}};
    const auto self = [](int rank) {
      return Newcomer{
          .run = "", .rank = rank, .size = 2, .settings = "", .host = "", .machine = "", .gpu = ""};
    };
    std::jthread enemy([&] {
      const Welcome found = find_rank_0(self(1), where);
      if (kind == LineMessage::over)
        (void)send_all(found.connection.socket, body, 1s);  // no message at all
      else
        (void)send_message(found.connection.socket, uint8_t(kind), body, 1s);
      std::this_thread::sleep_for(300ms);
    });
    MeetingHost host(receive_ranks(self(0), where, ""), 5s);
    const auto agreement = host.agreement();
    for (int i = 0; i < 2000 && host.failure().why.empty(); ++i) {
      (void)host.watch();
      std::this_thread::sleep_for(1ms);
    }
    return host.failure().why;
  };
  const auto call = [](int peer) {
    WireWriter wire;
    EventStream events(0, 1);
    put_call(wire, {.kind = Collective::send, .peer = peer, .count = 4, .sequence = 1, .name = "x"},
             events);
    return wire.take();
  };
  CHECK_THAT(hostile(LineMessage::await, WireWriter().put(int64_t(77)).take()),
             ContainsSubstring("rank 1"));
  CHECK_THAT(hostile(LineMessage::agree, "x"),
             ContainsSubstring("rank 1: a message of another rank ends too early"));
  CHECK_THAT(hostile(LineMessage::post, call(1000)),
             ContainsSubstring("rank 1: a call that there is not"));
  CHECK_THAT(hostile(LineMessage::flight, WireWriter().put(int64_t(-5)).put(uint64_t(0)).take()),
             ContainsSubstring("rank 1: more calls than there can be"));
  CHECK_THAT(
      hostile(LineMessage::flight, WireWriter().put(int64_t(5)).put(uint64_t(1) << 60).take()),
      ContainsSubstring("rank 1: more calls than there can be"));
  CHECK_THAT(hostile(LineMessage::over, std::string(64, char(0xff))),
             ContainsSubstring("rank 1 sends what is no message"));
  CHECK_THAT(hostile(LineMessage(200), ""), ContainsSubstring("rank 1"));
  CHECK_THAT(hostile(LineMessage::tell,
                     WireWriter().put(int64_t(-9)).put(FlightRecord::State::done).take()),
             ContainsSubstring("rank 1"));  // that it is gone
}

TEST_CASE("sends and receives meet over wires", "[dist]") {
  const auto letter = [](Collective kind, int peer, int64_t sequence, const char* name) {
    return Call{.kind = kind, .peer = peer, .count = 4, .sequence = sequence, .name = name};
  };
  const auto ring = [&](LineRank& rank, const char* received) {
    const int next = (rank.rank + 1) % kRanks, last = (rank.rank + 2) % kRanks;
    const int64_t sent = rank.others->post(letter(Collective::send, next, 1, "a"), rank.events);
    const int64_t got =
        rank.others->post(letter(Collective::receive, last, 1, received), rank.events);
    rank.others->await(sent);
    rank.others->await(got);
    if (!rank.others->has_met(sent) || !rank.others->has_met(got))
      throw std::logic_error("not met");
    rank.others->withdraw(sent, false);
    rank.others->withdraw(got, false);
  };
  SECTION("in a ring") {
    for (const Outcome& one : on_lines([&](LineRank& rank) { ring(rank, "a"); }))
      CHECK(one.error + one.failure == "");
  }
  SECTION("unless they do not fit") {
    const auto outcomes = on_lines([&](LineRank& rank) { ring(rank, rank.rank == 2 ? "b" : "a"); });
    require_all_fail_with(outcomes, "receive 'b'");
  }
  SECTION("and one that is dropped is an error") {
    const auto outcomes = on_lines([&](LineRank& rank) {
      if (rank.rank == 1)
        rank.others->withdraw(rank.others->post(letter(Collective::send, 0, 1, "a"), rank.events),
                              false);
      rank.exchange("");
    });
    require_all_fail_with(outcomes, "rank 1 dropped the Work of send 'a'");
  }
}

}  // namespace zl
