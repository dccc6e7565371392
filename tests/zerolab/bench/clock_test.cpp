// bench clock: its text, JSON and CSV say the same, and the page of the clock quotes the text.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

const std::string& clock_text() {
  static const std::string text = [] {
    const Finished finished = zerolab({"bench", "clock"});
    REQUIRE(finished.code == 0);
    CHECK(finished.err.empty());
    return finished.out;
  }();
  return text;
}

}  // namespace

TEST_CASE("the page of the clock quotes what bench clock prints", "[zerolab]") {
  const std::string page = read_file(ZEROLAB_SOURCE_DIR "/tutorials/reference/clock.md");
  const std::string begin = "`$ zerolab bench clock`\n\n```\n";
  const size_t at = page.find(begin);
  REQUIRE(at != std::string::npos);
  const size_t from = at + begin.size();
  CHECK(page.substr(from, page.find("```", from) - from) == clock_text());
}

TEST_CASE("bench clock --json has errors by table and set, and --csv has every step", "[zerolab]") {
  const ScratchFolder scratch;
  const Finished finished = zerolab({"bench", "clock", "--json", "--csv", scratch / "steps.csv"});
  REQUIRE(finished.code == 0);
  const Json json = Json::parse(finished.out);
  CHECK(json["command"] == "bench clock");
  CHECK(json["ok"] == true);

  int rows = 0;
  for (const Json& set : json["steps"]["sets"]) {
    CAPTURE(set.dump());
    rows += set["spec_sheet"]["rows"].get<int>();
    CHECK(set["calibrated"]["rows"] == set["spec_sheet"]["rows"].get<int>() - 1);
    CHECK(set["calibrated_on"]["ranks"] > 0);
    CHECK(contains(clock_text(), set["program"].get<std::string>()));
  }
  const std::vector<std::string> table = lines(read_file(scratch / "steps.csv"));
  CHECK(table.size() == size_t(rows) + 1);
  const auto cells = [](const std::string& line) { return std::ranges::count(line, ','); };
  for (const std::string& line : table) CHECK(cells(line) == cells(table[0]));

  int calls = 0;
  for (const Json& system : json["collectives"]["tables"])
    for (const Json& size : system["spec_sheet"])
      if (!size["error"].is_null()) calls += size["error"]["rows"].get<int>();
  int all = 0;
  for (const Json& size : json["collectives"]["total"]["spec_sheet"])
    all += size["error"]["rows"].get<int>();
  CHECK(calls == all);
  CHECK(all > 300);

  const Finished again = zerolab({"bench", "clock", "--csv", scratch / "steps.csv"});
  CHECK(again.code == 2);
  CHECK(contains(again.err, "steps.csv"));
}

}  // namespace cli
