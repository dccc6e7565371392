// Groups of ranks: what they communicate, where it is counted, and how their failures end all
// ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "dist/ordered/meta_communicator.h"
#include "dist/trace/chrome_trace.h"
#include "tests/dist/ranks.h"
#include "tests/dist/split_calls.h"
#include "tests/tensor/kept_events.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

RankOptions with_lane(bool lane, std::chrono::milliseconds timeout = 20s) {
  return lane ? lanes(timeout) : within(timeout);
}

}  // namespace

TEST_CASE("calls of groups have the values of their members only, also several in flight at once",
          "[dist]") {
  const Colors colors = kColors[size_t(GENERATE(0, 1, 2, 3, 4, 5))];
  const bool lane = GENERATE(false, true);
  CAPTURE(colors, lane);
  std::vector<std::string> wrong(colors.size(), "not said");
  run_ranks(
      int(colors.size()),
      [&](Communicator& comm) {
        Rank rank(comm);
        wrong[size_t(comm.rank())] =
            wrong_in_split(comm, rank, colors) + wrong_in_flight(comm, rank, 50);
      },
      with_lane(lane));
  CHECK(wrong == std::vector<std::string>(colors.size()));
}

TEST_CASE("the log of all ranks counts the calls of groups by label and size", "[dist]") {
  const bool lane = GENERATE(false, true);
  std::vector<CommunicationLog::Rows> rows(3);
  std::vector<std::string> events(3);
  const auto calls = [](Communicator& comm, Memory& memory) {
    const Tensor t = Tensor::empty(memory, MemoryUse::gradient, {6}, Dtype::f32);
    const auto intra = comm.split({0, 0, 1}, "intra");
    intra->all_gather(t, {"w", Purpose::parameter}).wait();
    intra->all_gather(t, {"w", Purpose::parameter}).wait();
    comm.all_gather(t, {"w", Purpose::parameter}).wait();
    return comm.log().rows() == intra->log().rows();
  };
  run_ranks(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        const auto kept = keep_events(comm.events());
        if (!calls(comm, rank.memory)) throw std::logic_error("two logs");
        rows[size_t(comm.rank())] = comm.log().rows();
        for (const Event& e : *kept)
          if (e.kind == EventKind::collective_end)
            events[size_t(comm.rank())] += std::string(e.group) + std::to_string(e.bytes) + " ";
      },
      with_lane(lane));
  const auto expected = [](int members) {  // 24 bytes by the ring: (N - 1)/N of them
    return CommunicationLog::Rows{{{Collective::all_gather, Purpose::parameter}, {1, 6, 24 * 2, 3}},
                                  {{Collective::all_gather, Purpose::parameter, "intra"},
                                   {2, 12, 2 * 24 * (members - 1), members}}};
  };
  CHECK(rows[0] == expected(2));
  CHECK(rows[1] == expected(2));
  CHECK(rows[2] == expected(1));
  CHECK(rows[2] != expected(2));
  CHECK(events == std::vector<std::string>{"intra12 intra12 16 ", "intra12 intra12 16 ",
                                           "intra0 intra0 16 "});
  EventStream stream(1);
  Memory memory({DeviceKind::meta}, meta_backend(), stream);
  const auto dry = meta_communicator(1, 3, stream);
  CHECK(calls(*dry, memory));
  CHECK(dry->log().rows() == expected(2));
}

TEST_CASE("traces show the group of a call", "[dist]") {
  std::vector<TraceRecorder> recorders(3, TraceRecorder(1000));
  run_ranks(
      3,
      [&](Communicator& comm) {
        Rank rank(comm);
        TraceRecorder& trace = recorders[size_t(comm.rank())];
        trace.begin(rank.memory.ledger(), rank.memory.ledger());
        comm.events().listen([&](const Event& e) { trace.see(e); });
        const auto intra = comm.split({0, 0, 1}, "intra");
        const Tensor t = rank.filled(6, 1);
        intra->all_gather(t, {"w", Purpose::parameter}).wait();
        comm.all_gather(t, {"w", Purpose::parameter}).wait();
        trace.stop();
      },
      within(20s));
  std::vector<RankTrace> traces;
  for (const TraceRecorder& recorder : recorders)
    traces.push_back(decode_trace(encode(recorder.trace())));
  std::string text;
  write_chrome_trace(traces, [&](std::string_view piece) { text += piece; });
  int in_groups = 0, of_all = 0, arrows = 0;
  const auto parsed = nlohmann::json::parse(text);
  for (const nlohmann::json& event : parsed["traceEvents"]) {
    arrows += event["ph"] == "f";
    if (event.value("cat", "") != "collective" || event["ph"] != "X") continue;
    (event["args"].value("group", "") == "intra" ? in_groups : of_all) += 1;
    CHECK(event["args"].contains("group") == (event["args"]["index"] == -1));
  }
  CHECK(in_groups == 3);
  CHECK(of_all == 3);
  CHECK(arrows == 2);  // of the call of all ranks, from the last one to the others
}

TEST_CASE("a dry run knows the groups of 1,024 ranks", "[dist]") {
  EventStream stream;
  Memory memory({DeviceKind::meta}, meta_backend(), stream);
  const auto comm = meta_communicator(1000, 1024, stream);
  std::vector<int> node(1024), place(1024);
  for (int r = 0; r < 1024; ++r) node[size_t(r)] = r / 8, place[size_t(r)] = r % 8;
  const auto intra = comm->split(node, "intra"), inter = comm->split(place, "inter");
  CHECK((intra->size() == 8 && intra->rank() == 0));
  CHECK((inter->size() == 128 && inter->rank() == 125));
  const Tensor t = Tensor::empty(memory, MemoryUse::gradient, {128}, Dtype::f32);
  inter->all_reduce(t, Reduction::sum, {"g", Purpose::gradient}).wait();
  CHECK(comm->log().rows().at({Collective::all_reduce, Purpose::gradient, "inter"}).sent_bytes() ==
        2 * 127 * 512 / 128);
}

TEST_CASE("what cannot be split is refused, and ranks must split alike", "[dist]") {
  const bool lane = GENERATE(false, true);
  std::vector<std::string> refused;
  run_ranks(
      2,
      [&](Communicator& comm) {
        const auto group = comm.split({0, 0}, "intra");
        const auto attempt = [&](Communicator& of, const Colors& colors, const char* label) {
          try {
            (void)of.split(colors, label);
          } catch (const std::invalid_argument& error) {
            if (comm.rank() == 0) refused.emplace_back(error.what());
          }
        };
        attempt(*group, {0, 1}, "inter");
        attempt(comm, {0, 1, 1}, "inter");
        attempt(comm, {0, 1}, "");
      },
      with_lane(lane));
  REQUIRE(refused.size() == 3);
  CHECK_THAT(refused[0], ContainsSubstring("this is the group 'intra', which cannot be split"));
  CHECK_THAT(refused[1], ContainsSubstring("3 colors for 2 ranks"));
  CHECK_THAT(refused[2], ContainsSubstring("needs a label"));
  const Outcome label = outcome(
      3,
      [](Communicator& comm) {
        (void)comm.split({0, 0, 1}, comm.rank() ? "intra" : "inter");
      },
      with_lane(lane));
  CHECK(label.all_say("rank 0 calls barrier 'split 'inter' by the colors 0 0 1'"));
  const Outcome other = outcome(
      3,
      [](Communicator& comm) {
        (void)comm.split({0, comm.rank() == 2, 1}, "intra");
      },
      with_lane(lane));
  CHECK(other.all_say("rank 2 calls barrier 'split 'intra' by the colors 0 1 1'"));
  const Outcome late = outcome(
      3,
      [](Communicator& comm) {
        if (comm.rank() == 1) std::this_thread::sleep_for(600ms);
        (void)comm.split({0, 0, 1}, "intra");
      },
      with_lane(lane, 200ms));
  CHECK(late.all_say("only 2 of 3 ranks came to barrier 'split"));
}

namespace {

Outcome of_groups(bool lane, const GroupCase& one) {
  const auto body = [&](Communicator& comm) {
    Rank rank(comm);
    run_group_case(one, rank);
  };
  return outcome(4, body, with_lane(lane, one.late ? kLate / 3 : 20s));
}

}  // namespace

TEST_CASE("a failure in one group fails all ranks, and says in which", "[dist]") {
  const bool lane = GENERATE(false, true);
  for (const GroupCase& one : group_cases()) {
    const Outcome result = of_groups(lane, one);
    CAPTURE(lane, one.title, result.errors);
    for (const std::string& part : one.says) CHECK(result.all_say(part));
    CHECK((result.thrown == "") == one.says.empty());
    CHECK(result.took < 10s);
  }
}
