// Control connections, over which processes compare calls and notice that one has died; here each
// process is a thread.
#include <sys/socket.h>

#include <future>

#include "tests/dist/processes/control_ranks.h"

namespace zl::test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("processes compare calls, and gather texts in rank order", "[dist]") {
  std::vector<std::vector<std::string>> heard(kRanks);
  const auto outcomes = run_control([&](ControlRank& rank) {
    for (int i = 0; i < 20; ++i) rank.all_reduce("gradient", 8 + i);
    heard[size_t(rank.rank)] =
        rank.all_gather_object(std::string(size_t(1'000'000 * rank.rank), char('a' + rank.rank)));
    rank.all_reduce("loss");
  });
  for (const ControlOutcome& one : outcomes) CHECK(one.error + one.failure == "");
  for (const auto& all : heard) {
    REQUIRE(all.size() == kRanks);
    for (int r = 0; r < kRanks; ++r)
      CHECK(all[size_t(r)] == std::string(size_t(1'000'000 * r), char('a' + r)));
  }
}

TEST_CASE("a mismatched call of one process is an error on all ranks", "[dist]") {
  const auto outcomes = run_control([](ControlRank& rank) {
    rank.all_reduce("first");
    rank.all_reduce("second", rank.rank == 1 ? 9 : 8);
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

TEST_CASE("a late process is named when the deadline passes", "[dist]") {
  for (const int late : {0, 1}) {
    const auto outcomes = run_control(
        [&](ControlRank& rank) {
          rank.all_reduce("first");
          if (rank.rank == late) std::this_thread::sleep_for(1500ms);
          rank.all_reduce("second");
        },
        {.timeout = 600ms});
    require_all_fail_with(
        outcomes,
        "only 2 of 3 ranks came to all_reduce 'second' of 8 f32 elements (call 2) within 600 ms");
    require_all_fail_with(outcomes, str("rank ", late, " was last seen in all_reduce 'first'"));
    for (const ControlOutcome& one : outcomes)
      CHECK_THAT(one.failure, !ContainsSubstring("same order"));
  }
}

TEST_CASE("a process that gives no sign of life is noticed outside of any call", "[dist]") {
  for (const int silent : {0, 2}) {
    const auto outcomes = run_control(
        [&](ControlRank& rank) {
          const auto until = std::chrono::steady_clock::now() + 5s;  // no call
          while (rank.client->failure().why.empty() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(2ms);
        },
        {.timeout = 500ms, .silent = silent});
    require_all_fail_with(outcomes, str("rank ", silent, " has given no sign of life for "),
                          silent);
    for (int r = 0; r < kRanks; ++r)
      if (r != silent) CHECK(outcomes[size_t(r)].took < 3s);
  }
}

TEST_CASE("a process that stops in a call is named before the call that waits for it", "[dist]") {
  const auto says_twice = [](Connection& connection) {
    FlightRecorder flight;
    EventStream events(2);
    (void)flight.begin({.kind = Collective::all_reduce, .count = 8, .sequence = 1, .name = "first"},
                       events, CallState::waiting);
    connection.send(ControlMessage::enter, to_bytes(encode(flight), ""));
    std::this_thread::sleep_for(400ms);  // the others wait in "second" meanwhile
    connection.send(ControlMessage::alive, to_bytes(encode(flight), int64_t(0)));
  };
  const auto outcomes = run_control(
      [&](ControlRank& rank) {
        rank.all_reduce("first");
        rank.all_reduce("second");
      },
      {.timeout = 1500ms, .silent = 2, .before_silence = says_twice});
  require_all_fail_with(outcomes, "rank 2 has given no sign of life for 1.", 2);
  require_all_fail_with(outcomes,
                        "rank 2 was last seen in all_reduce 'first' of 8 f32 elements (call 1)", 2);
  CHECK_THAT(outcomes[0].report, ContainsSubstring("rank 2: 1 call, not heard any more"));
}

TEST_CASE("a rank that fails ends soon if rank 0 is stopped, even without a deadline", "[dist]") {
  const auto outcomes = run_control(
      [](ControlRank& rank) {
        if (rank.rank == 1) throw CommunicationError("it broke");
        rank.fails("a message is too long");
      },
      {.timeout = 0ms, .silent = 0});
  CHECK(outcomes[1].failure == "it broke; and rank 0 does not answer");
  CHECK(outcomes[2].failure == "a message is too long; and rank 0 does not answer");
  for (const int r : {1, 2}) CHECK(outcomes[size_t(r)].took < 8s);
}

TEST_CASE("a rank that waits answers its server while it is in another library", "[dist]") {
  const auto outcomes = run_control([&](ControlRank& rank) {
    rank.client->while_waiting = [&] { (void)rank.client->failure(); };  // takes the client's lock
    if (rank.rank == 1) std::this_thread::sleep_for(50ms);
    rank.all_gather_object("");
  });
  for (const ControlOutcome& one : outcomes) CHECK(one.error + one.failure == "");
}

TEST_CASE("an error in a client's own thread is the reason why its rank fails", "[dist]") {
  const int port = free_ports();
  const auto why = [&](int rank) {
    ControlClient client(start_at(port, 10s, rank, 2), 0ms, [&](ControlClient& self) {
      if (rank == 1 && !self.failed()) throw std::runtime_error("it broke");
    });
    for (int i = 0; i < 10'000 && !client.failed(); ++i) std::this_thread::sleep_for(1ms);
    return client.failure().why;
  };
  auto rank_1 = std::async(std::launch::async, why, 1);
  for (const std::string& all : {why(0), rank_1.get()})  // also rank 0 knows it
    CHECK(all == "rank 1 no longer hears the others: it broke");
}

TEST_CASE("a process that is gone is noticed at once", "[dist]") {
  for (const int dead : {0, 1}) {
    const auto outcomes = run_control([&](ControlRank& rank) {
      rank.all_reduce("first");
      rank.dies = rank.rank == dead;
      if (!rank.dies) rank.all_gather_object("");
    });
    for (int r = 0; r < kRanks; ++r)
      if (r != dead) CHECK(outcomes[size_t(r)].took < 4s);
    require_all_fail_with(
        outcomes, dead == 0 ? "rank 0 has" : "rank 1 has died: its process ended without notice",
        dead);
    if (dead == 1) require_all_fail_with(outcomes, "rank 1 was last seen in all_reduce 'first'", 1);
  }
}

TEST_CASE("a process that sends invalid messages fails the run, and does nothing worse", "[dist]") {
  const auto failure_after = [](const std::function<void(Connection&)>& send) {
    const int port = free_ports();
    std::jthread enemy([&] {
      const auto found = let_in(start_at(port, 10s, 1, 2));
      send(*found);
      std::this_thread::sleep_for(300ms);
    });
    ControlClient client(start_at(port, 10s, 0, 2), 5s);
    for (int i = 0; i < 2000 && !client.failed(); ++i) std::this_thread::sleep_for(1ms);
    return client.failure().why;
  };
  const auto message = [&](ControlMessage kind, const std::string& flight,
                           const std::string& body = "") {
    return failure_after(
        [&](Connection& connection) { connection.send(kind, to_bytes(flight) + body); });
  };
  const auto calls = [](int64_t calls, uint64_t records) { return to_bytes(calls, records); };
  CHECK_THAT(message(ControlMessage::failed, calls(0, 0), to_bytes("why")),
             ContainsSubstring("rank 1: a message of another rank ends too early"));
  CHECK_THAT(message(ControlMessage::enter, calls(0, 0), to_bytes("")),
             ContainsSubstring("rank 1: it enters no call"));
  CHECK_THAT(message(ControlMessage::enter, "x"),
             ContainsSubstring("rank 1: a message of another rank ends too early"));
  for (const std::string& impossible : {calls(-5, 0), calls(5, uint64_t(1) << 60)})
    CHECK_THAT(message(ControlMessage::alive, impossible),
               ContainsSubstring("rank 1: a message holds an impossible number of calls"));
  const FlightRecord good{.call = {.sequence = 1}};
  FlightRecord kind = good, dtype = good, reduction = good, state = good;
  kind.call.kind = Collective(8), dtype.call.dtype = Dtype(-1);
  reduction.call.reduction = Reduction(2), state.state = CallState(99);
  const std::string no_text = to_bytes("", "", "", "");
  for (const FlightRecord& record : {kind, dtype, reduction, state})
    CHECK_THAT(message(ControlMessage::alive, calls(1, 1) + to_bytes(record) + no_text),
               ContainsSubstring("rank 1: a message holds an impossible call"));
  CHECK_THAT(message(ControlMessage(200), calls(0, 0)),
             ContainsSubstring("rank 1: it sends an unknown message"));
  CHECK_THAT(failure_after([](Connection& connection) {
               const std::string bytes(64, char(0xff));
               (void)::send(connection.socket().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
             }),
             ContainsSubstring("rank 1 sends what is no message"));
}

// Calls that ranks do not compare as they make them: the server finds later that they differ.
TEST_CASE("calls that are compared only on timeout do not wait, and mismatches are found later",
          "[dist]") {
  SECTION("when one of them does not complete") {
    std::atomic<int> called{0};
    const auto outcomes = run_control([&](ControlRank& rank) {
      rank.client->compare_calls_only_on_timeout();
      for (int i = 0; i < 30; ++i) rank.all_reduce("gradient", i == 20 && rank.rank == 2 ? 9 : 8);
      for (++called; called < kRanks;) std::this_thread::yield();
      if (rank.rank == 1) rank.fails("the transfer was not done");
      rank.all_gather_object("");
    });
    require_all_fail_with(
        outcomes, "rank 2 calls all_reduce 'gradient' of 9 f32 elements (call 21) while rank");
    require_all_fail_with(outcomes, "the transfer was not done");
  }
  SECTION("when one waits for all in another call") {
    for (const int other : {0, 1}) {
      const auto outcomes = run_control([&](ControlRank& rank) {
        rank.client->compare_calls_only_on_timeout();
        rank.all_reduce("gradient");
        if (rank.rank == other) rank.all_gather_object("");
        const auto until = std::chrono::steady_clock::now() + 4s;
        for (rank.all_reduce("loss"); std::chrono::steady_clock::now() < until;
             std::this_thread::sleep_for(2ms))
          if (rank.client->failed()) throw CommunicationError("another rank failed");
      });
      require_all_fail_with(outcomes, str("rank ", other, " calls barrier 'texts' (call 2)"));
      require_all_fail_with(outcomes, "all_reduce 'loss' of 8 f32 elements (call 2)");
    }
  }
  SECTION("and if all match nothing is found") {
    const auto outcomes = run_control([](ControlRank& rank) {
      rank.all_reduce("first");
      rank.client->compare_calls_only_on_timeout();
      for (int i = 0; i < 300; ++i) rank.all_reduce("gradient");
      rank.all_gather_object("");
      for (int i = 0; i < 300; ++i) rank.all_reduce("gradient");
    });
    for (const ControlOutcome& one : outcomes) CHECK(one.error + one.failure == "");
  }
}

TEST_CASE(
    "a late process does not hide that the calls of two others differ, and is named if they do not",
    "[dist]") {
  for (const int64_t count : {9, 8}) {
    std::atomic<int> called{0};
    const auto outcomes = run_control([&](ControlRank& rank) {
      rank.client->compare_calls_only_on_timeout();
      rank.all_reduce("gradient");
      if (rank.rank > 0) rank.all_reduce("gradient", rank.rank == 2 ? count : 8);
      for (++called; called < kRanks;) std::this_thread::yield();
      if (rank.rank == 1) rank.fails("a message is too long");
      while (!rank.client->failed()) std::this_thread::sleep_for(2ms);
      throw CommunicationError("another rank failed");
    });
    require_all_fail_with(
        outcomes,
        count == 9 ? "rank 2 calls all_reduce 'gradient' of 9 f32 elements (call 2) while rank 1 "
                     "calls all_reduce 'gradient' of 8 f32 elements (call 2)"
                   : "not there: rank 0 was last seen in all_reduce 'gradient' of 8 f32 elements "
                     "(call 1)");
    require_all_fail_with(outcomes, "So a message is too long");
  }
}

TEST_CASE("a message that a process sent before it was asked for its last calls is no answer",
          "[dist]") {
  const auto outcomes = run_control(
      [](ControlRank& rank) {
        rank.client->compare_calls_only_on_timeout();
        rank.all_reduce("gradient");
        if (rank.rank == 2) rank.fails("a message is too long");
        while (!rank.client->failed()) std::this_thread::sleep_for(2ms);
      },
      {.silent = 1, .before_silence = [](Connection& connection) {
         FlightRecorder flight;
         EventStream events(1);
         const auto send = [&](ControlMessage kind, const std::string& body) {
           connection.send(kind, to_bytes(encode(flight)) + body);
         };
         std::optional<Message> asked;
         do asked = connection.receive(deadline_in(10s));
         while (asked && (asked->kind != ControlMessage::alive ||
                          WireReader(asked->body).get<int64_t>() == 0));
         send(ControlMessage::alive, to_bytes(int64_t(0)));
         std::this_thread::sleep_for(60ms);
         (void)flight.begin(
             {.kind = Collective::all_reduce, .count = 9, .sequence = 1, .name = "gradient"},
             events, CallState::posted);
         send(ControlMessage::alive, asked->body);
       }});
  require_all_fail_with(outcomes, "rank 1 calls all_reduce 'gradient' of 9 f32 elements (call 1)",
                        1);
}

}  // namespace zl::test
