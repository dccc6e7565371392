// The snapshot of a real run, read back: what its actions add up to is the ledger.

#include "dist/trace/memory_snapshot.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "dist/trace/pickle_writer.h"
#include "tests/dist/trace/traced.h"
#include "tests/dist/trace/unpickle.h"

using namespace zl;
using namespace zl::test;

namespace {

using Json = nlohmann::json;

Json snapshot(const std::vector<RankTrace>& ranks) {
  std::string pickle;
  write_memory_snapshot(ranks, [&](std::string_view piece) { pickle += piece; });
  return Json::parse(test::unpickled_json(pickle));
}

struct Bytes {
  std::map<std::string, int64_t> live, peak;  // by use, and "total"
  void add(const std::string& use, int64_t bytes) {
    for (const std::string& key : {use, std::string("total")})
      peak[key] = std::max(peak[key], live[key] += bytes);
  }
};

// What MemoryViz.js would draw of a device: blocks that are live at the end and were never
// allocated, and blocks that were released and never allocated, existed before the first action.
Bytes replayed(const Json& shot, size_t device) {
  std::map<int64_t, Json> live;  // by address
  Bytes bytes;
  for (const Json& segment : shot["segments"]) {
    if (segment["device"] != device) continue;
    int64_t address = segment["address"], total = 0;
    for (const Json& block : segment["blocks"]) {
      CHECK(block["address"] == address);
      address += block["size"].get<int64_t>();
      total += block["size"].get<int64_t>();
      if (block["state"] == "active_allocated") live[block["address"]] = block;
    }
    CHECK(segment["total_size"] == total);
  }
  std::set<int64_t> allocated;
  const Json& actions = shot["device_traces"][device];
  for (const Json& a : actions) {
    const int64_t address = a["addr"];
    if (a["action"] == "alloc") allocated.insert(address);
    if (a["action"] == "free_completed" && !allocated.contains(address))
      bytes.add(a["category"], a["size"]);
    if (a["action"] == "free_completed") allocated.erase(address);
  }
  for (const auto& [address, block] : live)
    if (!allocated.contains(address)) bytes.add(block["frames"][0]["name"], block["size"]);
  bytes.peak = bytes.live;
  for (const Json& a : actions) {
    if (a["action"] == "alloc") bytes.add(a["category"], a["size"]);
    if (a["action"] == "free_completed") bytes.add(a["category"], -a["size"].get<int64_t>());
  }
  return bytes;
}

bool agrees(Bytes bytes, const MemoryLedger& ledger) {
  bool same = bytes.live["total"] == ledger.live_total();
  same = same && bytes.peak["total"] == ledger.peak_total();
  for (int use = 0; use < kMemoryUses; ++use) {
    same = same && bytes.live[name(MemoryUse(use))] == ledger.live(MemoryUse(use));
    same = same && bytes.peak[name(MemoryUse(use))] == ledger.peak(MemoryUse(use));
  }
  return same;
}

}  // namespace

TEST_CASE("the allocations of a snapshot add up to the ledger, live and at the peak, by use",
          "[dist]") {
  const Traced run = traced(3);
  Json shot = snapshot(run.ranks);
  REQUIRE(shot["device_traces"].size() == 3);
  for (size_t r = 0; r < 3; ++r) {
    CHECK(run.device[r].peak_total() > run.device[r].live_total());
    CHECK(agrees(replayed(shot, r), run.device[r]));
    CHECK(shot["device_traces"][r][0]["category"] == "unknown");
  }
  Json& actions = shot["device_traces"][1];
  REQUIRE(actions[1]["action"] == "alloc");
  actions[1]["size"] = actions[1]["size"].get<int64_t>() + 16;  // then they do not add up
  CHECK_FALSE(agrees(replayed(shot, 1), run.device[1]));
}

TEST_CASE("every release of a snapshot follows its allocation, at an address that is in a segment",
          "[dist]") {
  const Json shot = snapshot(traced(2).ranks);
  for (size_t device = 0; device < 2; ++device) {
    std::map<int64_t, int64_t> live;
    for (const Json& a : shot["device_traces"][device]) {
      const int64_t begin = a["addr"], size = a["size"];
      if (a["action"] == "alloc") {
        CHECK(live.emplace(begin, size).second);
        const auto around = std::ranges::count_if(shot["segments"], [&](const Json& s) {
          return s["device"] == device && s["address"] <= begin &&
                 begin + size <= s["address"].get<int64_t>() + s["total_size"].get<int64_t>();
        });
        CHECK(around == 1);
      } else if (a["action"] == "free_completed" && live.contains(begin)) {
        CHECK(live[begin] == size);
        live.erase(begin);
      }
    }
  }
}

TEST_CASE("frames of a snapshot say unit, step and use, then phase and event", "[dist]") {
  const Json shot = snapshot(traced(1).ranks);
  std::set<std::string> frames;
  for (const Json& a : shot["device_traces"][0])
    if (a["action"] == "alloc")
      for (const Json& f : a["frames"])
        frames.insert(f["filename"].get<std::string>() + ":" +
                      std::to_string(f["line"].get<int>()) + ":" + f["name"].get<std::string>());
  for (const char* frame : {"h.1:1:parameter", "h.1:2:gradient", "backward:1:before_backward",
                            "forward:2:before_forward", "step:2:step"}) {
    CAPTURE(frame, frames);
    CHECK(frames.contains(frame));
  }
  CHECK_FALSE(frames.contains("h.1:3:gradient"));
}

TEST_CASE("the host pool of rank r is device N + r of a snapshot", "[dist]") {
  const Traced run = traced(2, {.offload = true});
  const Json shot = snapshot(run.ranks);
  REQUIRE(shot["device_traces"].size() == 4);
  for (size_t r = 0; r < 2; ++r) {
    CHECK(run.host[r].peak_total() > 0);
    CHECK(agrees(replayed(shot, 2 + r), run.host[r]));
    CHECK(agrees(replayed(shot, r), run.device[r]));
    CHECK_FALSE(agrees(replayed(shot, r), run.host[r]));
  }
}

TEST_CASE("a pickle has the bytes that Python's pickle gives a meaning", "[dist]") {
  std::string pickle;
  const std::function<void(std::string_view)> write = [&](std::string_view p) { pickle += p; };
  PickleWriter out(write);
  out.begin_dict();
  out.field("a", 255);
  out.field("b", -1);
  out.field("c", int64_t(1) << 40);
  out.text("d");
  out.begin_list();
  out.text("a");
  out.end();
  out.end();
  out.finish();
  // pickletools.dis() of Python 3.11 shows {'a': 255, 'b': -1, 'c': 1099511627776, 'd': ['a']}.
  const std::string expected = std::string("\x80\x02}(X\x01\0\0\0aq\0K\xff", 14) +
                               std::string("X\x01\0\0\0bq\x01J\xff\xff\xff\xff", 13) +
                               std::string("X\x01\0\0\0cq\x02\x8a\x08\0\0\0\0\0\x01\0\0", 18) +
                               std::string("X\x01\0\0\0dq\x03](h\0eu.", 15);
  CHECK(pickle == expected);
  CHECK_THROWS(test::unpickled_json(pickle.substr(0, pickle.size() - 1)));
}

TEST_CASE("long lists, many texts and refused ends of a pickle", "[dist]") {
  std::string pickle;
  const std::function<void(std::string_view)> write = [&](std::string_view p) { pickle += p; };
  PickleWriter out(write);
  Json expected = Json::array();
  out.begin_list();
  for (int i = 0; i < 2500; ++i) {
    out.text(std::to_string(i % 700));
    expected.push_back(std::to_string(i % 700));
  }
  out.begin_list();
  const int64_t list = out.end_remembered();
  out.refer(list);
  expected.push_back(Json::array());
  expected.push_back(Json::array());
  CHECK_THROWS(out.finish());  // the list is open
  out.end();
  CHECK_THROWS(out.end());
  out.finish();
  CHECK(Json::parse(test::unpickled_json(pickle)) == expected);
}
