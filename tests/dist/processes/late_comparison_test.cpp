// Calls that ranks do not compare as they make them: the server finds later that they differ.
#include "tests/dist/processes/control_ranks.h"

namespace zl::test {

TEST_CASE("calls that are compared only on timeout do not wait, and mismatches are found later",
          "[dist]") {
  SECTION("when one of them does not complete") {
    std::atomic<int> called{0};
    const auto outcomes = run_control([&](ControlRank& rank) {
      rank.others->compare_calls_only_on_timeout();
      for (int i = 0; i < 30; ++i) rank.all_reduce("gradient", i == 20 && rank.rank == 2 ? 9 : 8);
      for (++called; called < kRanks;) std::this_thread::yield();
      if (rank.rank == 1) (void)rank.others->fail("the transfer was not done");
      rank.all_gather_object("");
    });
    require_all_fail_with(
        outcomes, "rank 2 calls all_reduce 'gradient' of 9 f32 elements (call 21) while rank");
    require_all_fail_with(outcomes, "the transfer was not done");
  }
  SECTION("when one waits for all in another call") {
    for (const int other : {0, 1}) {
      const auto outcomes = run_control([&](ControlRank& rank) {
        rank.others->compare_calls_only_on_timeout();
        rank.all_reduce("gradient");
        if (rank.rank == other) rank.all_gather_object("");
        const auto until = std::chrono::steady_clock::now() + 4s;
        for (rank.all_reduce("loss"); std::chrono::steady_clock::now() < until;
             std::this_thread::sleep_for(2ms))
          if (rank.others->failed()) throw CommunicationError("another rank failed");
      });
      require_all_fail_with(outcomes, str("rank ", other, " calls barrier 'texts' (call 2)"));
      require_all_fail_with(outcomes, "all_reduce 'loss' of 8 f32 elements (call 2)");
    }
  }
  SECTION("and if all match nothing is found") {
    const auto outcomes = run_control([](ControlRank& rank) {
      rank.all_reduce("first");
      rank.others->compare_calls_only_on_timeout();
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
      rank.others->compare_calls_only_on_timeout();
      rank.all_reduce("gradient");
      if (rank.rank > 0) rank.all_reduce("gradient", rank.rank == 2 ? count : 8);
      for (++called; called < kRanks;) std::this_thread::yield();
      if (rank.rank == 1) (void)rank.others->fail("a message is too long");
      while (!rank.others->failed()) std::this_thread::sleep_for(2ms);
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
        rank.others->compare_calls_only_on_timeout();
        rank.all_reduce("gradient");
        if (rank.rank == 2) (void)rank.others->fail("a message is too long");
        while (!rank.others->failed()) std::this_thread::sleep_for(2ms);
      },
      {.silent = 1, .before_silence = [](Connection& connection) {
         FlightRecorder flight;
         EventStream events(1, 4);
         const auto send = [&](ControlMessage kind, const std::string& body) {
           connection.send(uint8_t(kind),
                           WireWriter().text(encode(flight, kAllRecords)).take() + body);
         };
         Message asked;
         while (connection.receive(asked, std::chrono::steady_clock::now() + 10s) ==
                    Connection::State::message &&
                ControlMessage(asked.kind) != ControlMessage::send_flight) {
         }
         send(ControlMessage::alive, "");
         std::this_thread::sleep_for(60ms);
         (void)flight.begin(
             {.kind = Collective::all_reduce, .count = 9, .sequence = 1, .name = "gradient"},
             events, CallState::posted);
         send(ControlMessage::flight, asked.body);
       }});
  require_all_fail_with(outcomes, "rank 1 calls all_reduce 'gradient' of 9 f32 elements (call 1)",
                        1);
}

}  // namespace zl::test
