// --trace: a complete file at the end. Refusals: texts/refusals.txt.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kZero2 = tiny_run(2, "--ranks 3 --stage zero2 ");
const std::string kTwoStages = "compare --model tiny --steps 1 --ranks 2 --stages zero2 ";

Json file_of(const std::string& path) { return Json::parse(read_file(path)); }

}  // namespace

TEST_CASE("train --trace writes the timeline of all ranks and says what opens it", "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = folder / "run.json";
  const Finished finished = call(kZero2 + "--trace " + path);
  CHECK(finished.code == 0);
  check_says(finished.err, {"trace: " + path + ", for ui.perfetto.dev or chrome://tracing"});
  CHECK_FALSE(contains(finished.err, "ends before the run"));
  CHECK(files_in(folder.path()) == Words{"run.json"});
  const Json json = file_of(path);
  CHECK(json["otherData"]["ranks"] == 3);
  std::set<int> ranks;
  for (const Json& event : json["traceEvents"])
    if (event["ph"] == "X") ranks.insert(event["pid"].get<int>());
  CHECK(ranks == std::set{0, 1, 2});
  const std::string within = folder / "a/b";  // a folder of --out
  const Finished quiet = call(kZero2 + "-q --out " + within + " --trace " + within + "/trace.json");
  CHECK((quiet.code == 0 && quiet.err.empty()));
  CHECK(files_in(within) ==
        words("metrics.jsonl model.safetensors report.html report.json trace.json"));
  const std::string failed = folder / "failed.json";  // of a run that fails nothing stays
  CHECK(call(kZero2 + "--device-memory 100KiB --trace " + failed).code == 3);
  CHECK(files_in(folder.path()) == words("a run.json"));
}

// tiny on 3 ranks in chunks of 2,048: 114,688 bytes, by hand in tests/stages/offload/nvme_test.cpp.
TEST_CASE("a trace of a run on disk has the disk's bytes, reads and writes", "[zerolab][moves]") {
  const ScratchFolder folder;
  const auto counters = [&](const std::string& file, const std::string& more) {
    REQUIRE(call(kZero2 + "-q " + more + " --trace " + (folder / file)).code == 0);
    std::map<std::string, Json> last;  // of rank 1
    const Json json = file_of(folder / file);
    for (const Json& event : json["traceEvents"])
      if (event["ph"] == "C" && event["pid"] == 1) last[event["name"]] = event["args"];
    return last;
  };
  const std::string offload = " --set zero_optimization.offload_optimizer.";
  auto disk =
      counters("disk.json", offload + "device=nvme" + offload + "nvme_path=" + folder.path() +
                                " --set zero_optimization.sub_group_size=2048");
  CHECK(disk["disk memory"] == Json{{"optimizer_state", 114'688}});
  for (const char* way : {"disk read", "disk write"})
    CHECK(disk["moved"][way] == 2 * 114'688);  // two steps
  CHECK_FALSE(counters("host.json", offload + "device=cpu").contains("disk memory"));
}

}  // namespace cli
