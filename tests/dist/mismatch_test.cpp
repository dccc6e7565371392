// Ranks that do not make the same calls: all of them get an error at once that names both sides.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "dist/flight_recorder.h"
#include "tensor/error.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Deviation {
  std::string what;
  std::function<void(Rank&)> usual, odd;
  std::string usual_text, odd_text;  // parts of the message
};

std::vector<Deviation> deviations() {
  const auto reduce = [](int64_t count, const char* text) {
    return [=](Rank& rank) {
      rank.comm.all_reduce(rank.filled(count, 1), Reduction::sum, {text, Purpose::gradient}).wait();
    };
  };
  const auto usual = reduce(30, "h.1 gradient");
  const std::string usual_text = "all_reduce 'h.1 gradient' of 30 f32 elements";
  return {
      {"kind", usual,
       [](Rank& rank) {
         rank.comm.all_gather(rank.filled(30, 1), {"h.1 gradient", Purpose::gradient}).wait();
       },
       usual_text, "all_gather 'h.1 gradient' of 30 f32 elements"},
      {"kind, against a barrier", usual,
       [](Rank& rank) {
         rank.comm.barrier({"end of step", Purpose::check}).wait();
       },
       usual_text, "barrier 'end of step' (call 2)"},
      {"count", usual, reduce(31, "h.1 gradient"), usual_text, "of 31 f32"},
      {"count 0", usual, reduce(0, "h.1 gradient"), usual_text, "of 0 f32"},
      {"type", usual,
       [](Rank& rank) {
         rank.comm
             .all_reduce(rank.empty(30, Dtype::bf16), Reduction::sum,
                         {"h.1 gradient", Purpose::gradient})
             .wait();
       },
       usual_text, "of 30 bf16"},
      {"name", usual, reduce(30, "h.2 gradient"), usual_text, "'h.2 gradient'"},
      {"reduction", usual,
       [](Rank& rank) {
         rank.comm
             .all_reduce(rank.filled(30, 1), Reduction::mean, {"h.1 gradient", Purpose::gradient})
             .wait();
       },
       "elements, sum", "elements, mean"},
      {"root", [](Rank& rank) { rank.comm.broadcast(rank.filled(30, 1), 0, kName).wait(); },
       [](Rank& rank) { rank.comm.broadcast(rank.filled(30, 1), 1, kName).wait(); }, "from rank 0",
       "from rank 1"},
      {"order", [=](Rank& rank) { usual(rank), reduce(30, "h.0 gradient")(rank); },
       [=](Rank& rank) { reduce(30, "h.0 gradient")(rank), usual(rank); }, usual_text,
       "'h.0 gradient'"},
  };
}

}  // namespace

TEST_CASE("a rank that calls something else is an error on all ranks that names both sides",
          "[dist]") {
  const int ranks = GENERATE(2, 3, 5);
  const bool lane = GENERATE(false, true);
  for (int odd = 0; odd < ranks; ++odd)
    for (const Deviation& d : deviations()) {
      const auto body = [&](Communicator& comm) {
        Rank rank(comm);
        comm.barrier({"start", Purpose::check}).wait();
        (comm.rank() == odd ? d.odd : d.usual)(rank);
      };
      const Outcome result =
          outcome(ranks, body, lane ? lanes() : within(std::chrono::seconds(20)));
      CAPTURE(ranks, lane, odd, d.what, result.errors);
      CHECK(result.all_failed());
      CHECK(result.all_say(d.usual_text));
      CHECK(result.all_say(d.odd_text));
      CHECK(result.all_say(str("rank ", odd, " calls ")));
      CHECK(result.all_say("the same calls in the same order"));
      CHECK(result.took < std::chrono::seconds(5));  // the timeout is 20 s
    }
}

TEST_CASE("the same calls are no mismatch", "[dist]") {  // the twin of the case above
  for (const Deviation& d : deviations()) {
    const Outcome result = outcome(3, [&](Communicator& comm) {
      Rank rank(comm);
      comm.barrier({"start", Purpose::check}).wait();
      d.odd(rank);
    });
    CHECK(result.thrown == "");
  }
}

TEST_CASE("the error of a mismatch names the call of each rank", "[dist]") {
  const Outcome result = outcome(3, [](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(96, 1);
    if (comm.rank() == 2)
      comm.reduce_scatter(t, Reduction::mean, {"h.1 gradient", Purpose::gradient}).wait();
    else
      comm.all_gather(t, {"h.1 parameter", Purpose::parameter}).wait();
  });
  CHECK(result.errors[0] ==
        "rank 0 in all_gather 'h.1 parameter' of 96 f32 elements (call 1): rank 2 calls "
        "reduce_scatter "
        "'h.1 gradient' of 96 f32 elements (call 1) while ranks 0 and 1 call all_gather 'h.1 "
        "parameter' of 96 f32 "
        "elements (call 1); all ranks must make the same calls in the same order");
  CHECK(result.thrown.find("rank 2 calls reduce_scatter") != std::string::npos);
  CHECK_THAT(last_failure_report(), ContainsSubstring("rank 0: 1 call") &&
                                        ContainsSubstring("rank 2 calls reduce_scatter"));
}

TEST_CASE("after a failure every further call throws the same failure", "[dist]") {
  std::vector<std::string> again(2);
  const Outcome result = outcome(2, [&](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(4 + comm.rank(), 1);
    try {
      comm.all_reduce(t, Reduction::sum, kName).wait();
    } catch (const CommunicationError&) {
    }
    try {
      comm.barrier(kName).wait();
    } catch (const CommunicationError& error) {
      again[size_t(comm.rank())] = error.what();
    }
  });
  for (const std::string& text : again)
    CHECK_THAT(text, ContainsSubstring("in barrier") && ContainsSubstring("of 4 f32") &&
                         ContainsSubstring("of 5 f32"));
  CHECK_THAT(result.thrown, ContainsSubstring("of 5 f32"));  // though no rank let it pass
}

TEST_CASE("arguments that cannot be right on this rank are its own error, before anything is sent",
          "[dist]") {
  using Call = std::function<Work(Rank&)>;
  const std::pair<const char*, Call> refused[] = {
      {"reduce_scatter 'h.1 gradient': 10 elements cannot be divided among 4 ranks; pad to 12",
       [](Rank& r) { return r.comm.reduce_scatter(r.empty(10), Reduction::sum, kName); }},
      {"pad to 4", [](Rank& r) { return r.comm.all_gather(r.empty(3), kName); }},
      {"pad to 8", [](Rank& r) { return r.comm.all_to_all(r.empty(5), r.empty(5), kName); }},
      {"must be alike", [](Rank& r) { return r.comm.all_to_all(r.empty(4), r.empty(8), kName); }},
      {"overlap",
       [](Rank& r) {
         const Tensor t = r.empty(6);
         return r.comm.all_to_all(t.slice(0, {4}), t.slice(2, {4}), kName);
       }},
      {"undefined", [](Rank& r) { return r.comm.all_reduce(Tensor(), Reduction::sum, kName); }},
      {"rank 4 is out of range: there are 4 ranks, 0 to 3",
       [](Rank& r) { return r.comm.broadcast(r.empty(4), 4, kName); }},
      {"rank -1 is out of range", [](Rank& r) { return r.comm.send(r.empty(4), -1, kName); }},
      {"mean of integers",
       [](Rank& r) { return r.comm.all_reduce(r.empty(4, Dtype::i32), Reduction::mean, kName); }}};
  for (const auto& [part, call] : refused) {
    std::string text;
    run_ranks(4, [&, &make = call](Communicator& comm) {
      Rank rank(comm);
      try {
        make(rank).wait();
      } catch (const std::invalid_argument& error) {
        if (comm.rank() == 3) text = error.what();
        if (!comm.log().rows().empty()) text = "it was logged";
      }
    });
    CHECK_THAT(text, ContainsSubstring(part));
  }
}

TEST_CASE("a rank that has come to a call that takes too long is not reported as missing",
          "[dist]") {
  const auto text = [](const Call& call, const Call& other, CallState state) {
    EventStream events;
    FlightRecorder first, second;
    first.begin(call, events, CallState::waiting);
    second.begin(other, events, state);
    const int64_t before = steady_nanoseconds();
    while (steady_nanoseconds() == before) continue;
    return overdue_text({&first, &second}, 1, 0);
  };
  const Call send{.kind = Collective::send, .peer = 1, .count = 4, .sequence = 3, .name = "x"},
      sum{.kind = Collective::all_reduce, .count = 4, .sequence = 3, .name = "x"};
  Call receive = send, last_sum = sum;
  receive.kind = Collective::receive, receive.peer = GENERATE(0, 2), last_sum.sequence = 2;
  CHECK_THAT(
      text(send, receive, CallState::waiting),
      ContainsSubstring(receive.peer == 0 ? "rank 0 in send 'x'" : "1 did not match send 'x'"));
  for (const CallState state : {CallState::posted, CallState::done}) {
    CHECK_THAT(text(sum, sum, state), ContainsSubstring("(call 3): the transfer was not done"));
    CHECK_THAT(text(sum, last_sum, state), ContainsSubstring("only 1 of 2 ranks came to"));
  }
}
