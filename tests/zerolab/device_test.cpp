// Where ranks compute: --device of train and compare, --as of plan. Without GPUs, but for the last
// ones.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const std::vector<std::string> kCompare = {"compare", "--model", "tiny",   "--steps", "2",
                                           "--ranks", "3",       "--json", "-q"};

// What two runs of the same numbers share.
Json timeless(const Finished& finished) {
  REQUIRE(finished.code == 0);
  Json json = Json::parse(finished.out);
  for (Json& stage : json["stages"])
    for (const char* time : {"seconds_per_step", "communication_time"}) stage.erase(time);
  return json;
}

// Peak bytes of a plan by stage and use, and of the total.
std::map<std::string, int64_t> peaks(const Json& plan) {
  std::map<std::string, int64_t> all;
  for (const Json& stage : plan["stages"]) {
    const std::string name = stage["stage"];
    for (const Json& row : stage["memory"])
      all[name + " " + row["use"].get<std::string>()] = row["predicted_peak_bytes"];
    all[name + " total"] = stage["predicted_peak_total_bytes"][0];
  }
  return all;
}

Json plan(const std::vector<std::string>& flags) {
  return Json::parse(zerolab(with({"plan", "--model", "small", "--json"}, flags)).out);
}

bool gpu_here() {
  return Json::parse(run({.arguments = {"doctor", "--json"}, .gpus = true}).out)["cuda"]["usable"];
}

}  // namespace

TEST_CASE("where there is no GPU, auto is the CPU and says nothing about it", "[zerolab]") {
  const Finished automatic = zerolab(kCompare);
  CHECK(automatic.err.empty());
  const Json cpu = timeless(zerolab(with(kCompare, {"--device", "cpu"})));
  CHECK(cpu["device"] == "cpu");
  CHECK(cpu == timeless(automatic));
  CHECK(cpu == timeless(zerolab(with(kCompare, {"--device", "auto"}))));
  CHECK(cpu != timeless(zerolab(with(kCompare, {"--device", "cpu", "--seed", "2"}))));
  const Finished told =
      zerolab({"train", "--model", "tiny", "--steps", "1", "--sample", "0", "--json"});
  CHECK(Json::parse(told.out)["device"] == "cpu");
  CHECK_FALSE(contains(told.err, "device"));
}

TEST_CASE(
    "--device cuda without a GPU ends with 2 and names the problem and the cure that doctor names",
    "[zerolab]") {
  const Json cuda = Json::parse(zerolab({"doctor", "--json"}).out)["cuda"];
  for (const char* command : {"train", "compare"}) {
    const Finished refused =
        zerolab({command, "--model", "tiny", "--steps", "2", "--device", "cuda"});
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(contains(refused.err, "--device cuda: " + cuda["problem"].get<std::string>()));
    CHECK(contains(refused.err, cuda["cure"].get<std::string>()));
  }
}

TEST_CASE(
    "plan --as cuda differs from --as cpu in workspace and in the peaks that hold it, and in "
    "nothing else",
    "[zerolab]") {
  const Json cpu = plan({"--as", "cpu"}), cuda = plan({"--as", "cuda"});
  CHECK(cpu == plan({}));
  CHECK(cpu["as"] == "cpu");
  CHECK(cuda["as"] == "cuda");
  const auto here = peaks(cpu), there = peaks(cuda);
  REQUIRE(here.size() == there.size());
  for (const auto& [key, bytes] : here) {
    CAPTURE(key);
    if (key.ends_with(" workspace")) {
      CHECK(there.at(key) >= int64_t(32) << 20);  // cuBLAS's
      CHECK(bytes < int64_t(32) << 20);
    } else if (!key.ends_with(" total")) {
      CHECK(there.at(key) == bytes);
    } else {
      CHECK(there.at(key) > bytes);
    }
  }
  for (size_t i = 0; i < 4; ++i)
    CHECK(cpu["stages"][i]["communication"] == cuda["stages"][i]["communication"]);
  CHECK(contains(zerolab({"plan", "--model", "tiny", "--as", "cuda"}).out, "as on GPUs"));
}

TEST_CASE("plan refuses a kind of device that it does not know, and one beside --parameters",
          "[zerolab]") {
  const Finished unknown = zerolab({"plan", "--as", "gpu"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "--as: 'gpu' is neither cpu nor cuda"));
  CHECK(zerolab({"plan", "--parameters", "1e9", "--as", "cuda"}).code == 2);
  CHECK(zerolab({"plan", "--parameters", "1e9"}).code == 0);
}

TEST_CASE("on GPUs all stages keep their promises, and the run says where it computes",
          "[zerolab]") {
  if (!gpu_here()) SKIP("no GPU can be used here");
  const Finished finished =
      run({.arguments = {"compare", "--model", "tiny", "--steps", "2", "--ranks", "3", "--json"},
           .gpus = true});
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(contains(finished.err, "device  cuda, "));
  const Json json = Json::parse(finished.out);
  CHECK(json["device"] == "cuda");
  CHECK(json["ok"] == true);
}

TEST_CASE("--tf32 changes bits of fp32 on a GPU, and is said to change none of bf16", "[zerolab]") {
  if (!gpu_here()) SKIP("no GPU can be used here");
  const auto train = [](const std::vector<std::string>& flags) {
    return run({.arguments = with({"train", "--model", "tiny", "--steps", "3", "--sample", "0",
                                   "--json", "--device", "cuda"},
                                  flags),
                .gpus = true});
  };
  const auto loss = [](const Finished& finished) { return Json::parse(finished.out)["loss"]; };
  CHECK(loss(train({})) == loss(train({})));
  CHECK(loss(train({})) != loss(train({"--tf32"})));
  const Finished bf16 = train({"--precision", "bf16", "--tf32"});
  CHECK(contains(bf16.err, "note: --tf32 has no effect in bf16"));
  CHECK(loss(bf16) == loss(train({"--precision", "bf16"})));
}

}  // namespace cli
