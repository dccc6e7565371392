// The timeline of a real run, parsed back: tracks nest, arrows join all ranks, counters are the
// ledger's.
#include "dist/trace/chrome_trace.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "dist/communicator.h"
#include "tests/dist/trace/traced.h"

using namespace zl;
using namespace zl::test;

namespace {

using Json = nlohmann::json;

Json drawn(const std::vector<RankTrace>& ranks) {
  std::string text;
  write_chrome_trace(ranks, [&](std::string_view piece) { text += piece; });
  return Json::parse(text);
}

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

using Track = std::pair<int, int>;
Track track_of(const Json& event) { return {event["pid"].get<int>(), event["tid"].get<int>()}; }

// [ns] of the slices of each track, in order, the outer of two that begin together first.
std::map<Track, std::vector<std::pair<int64_t, int64_t>>> slices(const Json& trace) {
  std::map<Track, std::vector<std::pair<int64_t, int64_t>>> all;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X")
      all[track_of(e)].emplace_back(nanoseconds(e["ts"]),
                                    nanoseconds(e["ts"]) + nanoseconds(e["dur"]));
  for (auto& [track, list] : all)
    std::ranges::sort(list, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
  return all;
}

bool nested(const Json& trace) {
  for (const auto& [track, list] : slices(trace)) {
    std::vector<int64_t> open;
    for (const auto& [begin, end] : list) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (begin < 0 || end < begin || (!open.empty() && end > open.back())) return false;
      open.push_back(end);
    }
  }
  return true;
}

struct Arrow {
  std::vector<Json> begins, ends;
};
std::map<int64_t, Arrow> arrows(const Json& trace) {
  std::map<int64_t, Arrow> all;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] == "s") all[e["id"]].begins.push_back(e);
    if (e["ph"] == "f") all[e["id"]].ends.push_back(e);
  }
  return all;
}

// The index of the collective in which an end of an arrow is; -1: in none.
int64_t collective_at(const Json& trace, const Json& arrow) {
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "collective" || track_of(e) != track_of(arrow)) continue;
    const int64_t begin = nanoseconds(e["ts"]), at = nanoseconds(arrow["ts"]);
    if (begin <= at && at <= begin + nanoseconds(e["dur"])) return e["args"]["index"];
  }
  return -1;
}

// Ranks that arrows join, by collective. Throws if an arrow is broken.
std::map<int64_t, std::set<int>> joined(const Json& trace) {
  std::map<int64_t, std::set<int>> all;
  for (const auto& [id, arrow] : arrows(trace)) {
    if (arrow.begins.size() != 1 || arrow.ends.size() != 1)
      throw std::logic_error("an arrow without two ends");
    const Json &from = arrow.begins[0], &to = arrow.ends[0];
    const int64_t index = collective_at(trace, from);
    if (index < 0 || collective_at(trace, to) != index)
      throw std::logic_error("an arrow from one collective to another");
    if (nanoseconds(from["ts"]) > nanoseconds(to["ts"]))
      throw std::logic_error("an arrow into the past");
    all[index].insert({from["pid"].get<int>(), to["pid"].get<int>()});
  }
  return all;
}

// What a rank records of the events that `make` appends.
RankTrace recorded(int rank, const std::function<void(EventStream&)>& make) {
  EventStream events(rank);
  TraceRecorder recorder(100);
  recorder.begin({}, {});
  events.listen([&](const Event& e) { recorder.see(e); });
  make(events);
  return recorder.trace();
}

std::set<std::string> names(const Json& trace, const std::string& category) {
  std::set<std::string> all;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == category) all.insert(e["name"]);
  return all;
}

}  // namespace

TEST_CASE("a trace has phases, units and kernels within each other, and collectives beside them",
          "[dist]") {
  const int ranks = GENERATE(1, 3);
  const bool lane = GENERATE(false, true);
  const Traced run = traced(ranks, {.lane = lane});
  Json trace = drawn(run.ranks);
  CHECK(trace["otherData"]["events_left_out"] == 0);
  CHECK(nested(trace));
  CHECK(slices(trace).size() == size_t(2 * ranks));  // two tracks each
  CHECK(names(trace, "phase") >= std::set<std::string>{"backward", "data", "forward", "step"});
  for (const char* unit :
       {"root forward", "h.0 forward", "h.1 backward", "root backward", "h.0 update"})
    CHECK(names(trace, "unit").contains(unit));
  for (const char* kernel : {"matmul", "attention_backward", "adamw"})
    CHECK(names(trace, "kernel").contains(kernel));
  CHECK(names(trace, "collective").contains("reduce_scatter h.1 gradient"));
  CHECK(names(trace, "exposed").contains("wait for reduce_scatter h.1 gradient") == lane);
  std::vector<int64_t> sent(run.ranks.size());
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "collective") continue;
    sent[e["pid"].get<size_t>()] += e["args"]["sent_bytes"].get<int64_t>();
    CHECK(e["args"]["waited_us"].get<double>() <= e["dur"].get<double>());
    CHECK(e["args"]["bytes"].get<int64_t>() > e["args"]["count"].get<int64_t>());
  }
  CHECK(sent == run.sent);
  for (Json& e :
       trace["traceEvents"])  // a slice that ends after the one that contains it is noticed
    if (e["ph"] == "X" && e["cat"] == "kernel") {
      e["dur"] = 1e9;
      break;
    }
  CHECK_FALSE(nested(trace));
}

TEST_CASE("arrows join every collective on all ranks, forward in time", "[dist]") {
  const bool lane = GENERATE(false, true);
  Json trace = drawn(traced(3, {.lane = lane}).ranks);
  std::set<int64_t> indices;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "collective")
      indices.insert(e["args"]["index"].get<int64_t>());
  CHECK(nested(trace));
  const auto all = joined(trace);
  CHECK(all.size() == indices.size());
  for (const auto& [index, ranks] : all) CHECK(ranks == std::set{0, 1, 2});
  CHECK(arrows(trace).size() == 2 * indices.size());
  for (Json& e : trace["traceEvents"])
    if (e["ph"] == "f") {
      e["ts"] = e["ts"].get<double>() + 1e9;
      break;
    }
  CHECK_THROWS_AS(joined(trace), std::logic_error);
}

TEST_CASE(
    "calls of one group overlap, and are on separate tracks; the next group takes the first "
    "again",
    "[dist]") {
  const auto two_groups = [](EventStream& events) {
    for (int group = 0; group < 2; ++group)
      for (const EventKind kind :
           {EventKind::collective_begin, EventKind::collective_met, EventKind::collective_end})
        for (const char* unit : {"a", "b", "c"})
          events.append(kind, "all_reduce", 12, 3, events.keep(unit));
  };
  const Json trace = drawn({recorded(0, two_groups), recorded(1, two_groups)});
  CHECK(nested(trace));
  std::map<std::string, std::vector<int>> tracks;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "collective" && e["pid"] == 0)
      tracks[e["args"]["name"]].push_back(e["tid"]);
  CHECK(tracks ==
        std::map<std::string, std::vector<int>>{{"a", {2, 2}}, {"b", {3, 3}}, {"c", {4, 4}}});
  CHECK(arrows(trace).size() == 6);
}

TEST_CASE("a trace counts what is moved between memory spaces, and draws nothing where nothing is",
          "[dist][moves]") {
  const auto moves = [](EventStream& events) {
    events.set_phase("step");
    if (events.rank() > 0) return;
    events.move(Move::host_to_device, 100);
    events.move(Move::device_to_host, 7);
    events.move(Move::host_to_device, 20);
  };
  std::vector<std::pair<int64_t, int64_t>> counted;
  const Json trace = drawn({recorded(0, moves), recorded(1, moves)});
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "C" || e["name"] != "moved") continue;
    CHECK(e["pid"] == 0);
    CHECK(e["args"]["disk read"] == 0);
    counted.emplace_back(e["args"]["host to device"].get<int64_t>(),
                         e["args"]["device to host"].get<int64_t>());
  }
  using Counted = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(counted == Counted{{0, 0}, {100, 0}, {100, 7}, {120, 7}});
}

TEST_CASE("a call in flight is drawn until its data has moved, and its wait beside the kernels",
          "[dist]") {
  const bool cut = GENERATE(false, true);  // while the rank waits
  struct Seen {
    EventKind kind;
    const char* name;
    int64_t at;  // [us]
  };
  using K = EventKind;
  std::vector<Seen> seen = {{K::collective_begin, "a", 100}, {K::kernel, "matmul", 110},
                            {K::collective_begin, "b", 200}, {K::kernel, "adamw", 210},
                            {K::collective_wait, "b", 400},  {K::collective_met, "b", 260},
                            {K::collective_moved, "b", 350}, {K::collective_end, "b", 410},
                            {K::collective_wait, "a", 415},  {K::collective_met, "a", 150},
                            {K::collective_moved, "a", 250}, {K::collective_end, "a", 420}};
  if (cut) seen.resize(7);
  const Json trace = drawn({recorded(0, [&](EventStream& events) {
    for (const auto& [kind, name, at] : seen) {
      const bool kernel = kind == K::kernel;
      events.append(kind, kernel ? name : "all_gather", 12, 3, kernel ? "" : events.keep(name),
                    1000 * at);
    }
  })});
  CHECK(nested(trace));
  // By name: track, begin and end [us] after the first event.
  std::map<std::string, std::array<int64_t, 3>> drawn_at;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] != "wait")
      drawn_at[e["name"]] = {e["tid"].get<int64_t>(), nanoseconds(e["ts"]) / 1000,
                             (nanoseconds(e["ts"]) + nanoseconds(e["dur"])) / 1000};
  std::map<std::string, std::array<int64_t, 3>> expected = {
      {"matmul", {1, 10, 100}}, {"adamw", {1, 110, 300}}, {"all_gather b", {3, 100, 250}}};
  if (cut) {
    expected["all_gather a"] = {2, 0, 300};
    expected["wait for all_gather b"] = {1, 300, 300};
  } else {
    expected["all_gather a"] = {2, 0, 150};
    expected["wait for all_gather b"] = {1, 300, 310};
    expected["wait for all_gather a"] = {1, 315, 320};
  }
  CHECK(drawn_at == expected);
}

TEST_CASE("counters end where ledger and log end, and their highest is the ledger's peak",
          "[dist]") {
  const Traced run = traced(3);
  const Json trace = drawn(run.ranks);
  for (int rank = 0; rank < 3; ++rank) {
    const MemoryLedger& ledger = run.device[size_t(rank)];
    std::map<std::string, int64_t> last, highest;
    int64_t highest_total = 0, sent = -1;
    for (const Json& e : trace["traceEvents"]) {
      if (e["ph"] == "C" && e["pid"] == rank && e["name"] == "sent") {
        CHECK(e["args"]["bytes"].get<int64_t>() >= sent);
        sent = e["args"]["bytes"];
      }
      if (e["ph"] != "C" || e["pid"] != rank || e["name"] != "device memory") continue;
      int64_t total = 0;
      for (const auto& [use, bytes] : e["args"].items()) {
        last[use] = bytes;
        highest[use] = std::max<int64_t>(highest[use], bytes);
        total += bytes.get<int64_t>();
      }
      highest_total = std::max(highest_total, total);
    }
    for (int i = 0; i < kMemoryUses; ++i) {
      const std::string use = name(MemoryUse(i));
      CAPTURE(rank, use);
      CHECK(last[use] == ledger.live(MemoryUse(i)));
      CHECK(highest[use] == ledger.peak(MemoryUse(i)));
    }
    CHECK(highest_total == ledger.peak_total());
    CHECK(highest_total > ledger.live_total());  // they do move
    CHECK(sent == run.sent[size_t(rank)]);
    CHECK(sent > 0);
  }
}

TEST_CASE("a trace that is cut is still whole: all that began ends, and it says what is missing",
          "[dist]") {
  const int64_t capacity = GENERATE(0, 1, 37, 400);
  const Traced run = traced(3, {.capacity = capacity});
  CAPTURE(capacity);
  for (const RankTrace& rank : run.ranks) {
    CHECK(int64_t(rank.events.size()) == capacity);
    CHECK(rank.left_out > 0);
  }
  const Json trace = drawn(run.ranks);
  CHECK(trace["otherData"]["events_left_out"] ==
        run.ranks[0].left_out + run.ranks[1].left_out + run.ranks[2].left_out);
  CHECK(nested(trace));
  for (const auto& [index, ranks] : joined(trace)) CHECK(ranks == std::set{0, 1, 2});
}

TEST_CASE("a rank's part comes from another process as it was, or not at all", "[dist]") {
  const Traced run = traced(2);
  const std::string bytes = encode(run.ranks[1]);
  CHECK(drawn({run.ranks[0], decode_trace(bytes)}) == drawn(run.ranks));
  CHECK(drawn({run.ranks[1], decode_trace(bytes)}) != drawn(run.ranks));
  CHECK_THROWS_AS(decode_trace(bytes.substr(0, bytes.size() - 1)), CommunicationError);
}

TEST_CASE("the clock of another machine is set by when collectives end", "[dist]") {
  const Traced run = traced(3);
  std::vector<RankTrace> ranks = run.ranks;
  for (TraceEvent& e : ranks[2].events) e.nanoseconds += int64_t(5e15);
  std::vector<RankTrace> same = ranks;
  align_clocks(same);  // it says that it shares the clock
  CHECK(same[2].events[0].nanoseconds == ranks[2].events[0].nanoseconds);
  ranks[2].machine = "another";
  align_clocks(ranks);
  CHECK(ranks[1].events[0].nanoseconds == run.ranks[1].events[0].nanoseconds);
  const int64_t off = ranks[2].events[0].nanoseconds - run.ranks[2].events[0].nanoseconds;
  CHECK(std::abs(off) <
        int64_t(1e9));  // what threads of one process need to leave a collective, and not 5e15
  CHECK(nested(drawn(ranks)));
}
