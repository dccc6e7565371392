// plan --machine: which stage it says to take, what fits, and how large groups are.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "stages/predict/clock/machine.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::vector<std::string> plan(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"plan", "--precision", "bf16"});
  return flags;
}

Json document(std::vector<std::string> flags) {
  flags.push_back("--json");
  return Json::parse(zerolab(plan(flags)).out);
}

}  // namespace

TEST_CASE("plan --machine takes the fastest stage that fits, not the first", "[zerolab]") {
  const std::vector<std::string> flags = {"--model",   "gpt2-xl",   "--ranks",   "8",
                                          "--machine", "a100-80gb", "--overlap", "on"};
  const Json stages = document(flags)["stages"];
  const auto& fastest = *std::ranges::min_element(
      stages, {}, [](const Json& s) { return s["seconds_per_step"].get<double>(); });
  REQUIRE(stages[0]["fits"] == true);
  REQUIRE(fastest["stage"] != stages[0]["stage"]);
  const std::string text = zerolab(plan(flags)).out;
  CHECK(contains(text, "\nTake " + fastest["stage"].get<std::string>() +
                           ": it is the fastest that fits, with "));
  CHECK_FALSE(contains(text, "the first that fits"));
  // Without a machine there are no times.
  const Finished none =
      zerolab(plan({"--model", "gpt2-xl", "--ranks", "8", "--device-memory", "80GB"}));
  CHECK(contains(none.out, "the first that fits"));
  CHECK_FALSE(contains(none.out, "the fastest that fits"));
}

TEST_CASE("plan --machine counts host memory and disk of what is offloaded", "[zerolab]") {
  const ScratchFolder folder;
  zl::Machine m = zl::find_machine("a100-80gb");
  const auto finished = [&](const char* where) {
    const std::string file = write_file(folder / "m.json", zl::machine_json(m));
    std::vector<std::string> flags = {"--model", "gpt2",      "--ranks", "8",         "--stages",
                                      "zero1",   "--offload", where,     "--machine", file};
    if (where == std::string("nvme")) flags.insert(flags.end(), {"--nvme-path", folder.path()});
    const Finished plan_of = zerolab(plan(flags));
    std::filesystem::remove(file);
    return plan_of;
  };
  CHECK(finished("cpu").code == 0);
  CHECK(finished("nvme").code == 0);
  m.host.memory_bytes = 1e9;  // of 12 bytes of 124 million parameters
  const Finished small = finished("cpu");
  CHECK(small.code == 3);
  CHECK(contains(small.out, "No stage fits."));
  CHECK(contains(small.out, "zero1: "));
  CHECK(contains(small.out, "does not fit: too little host memory; "));
  CHECK(finished("none").code == 0);
  m.host.memory_bytes = 2e12, m.host.disk_bytes = 1e9;
  CHECK(finished("cpu").code == 0);
  const Finished disk = finished("nvme");
  CHECK(disk.code == 3);
  CHECK(contains(disk.out, "does not fit: too little disk; "));
}

TEST_CASE("plan --machine takes hsdp whose replicas have several nodes", "[zerolab]") {
  const auto hsdp = [](const std::string& replicas) {
    return zerolab(plan({"--model", "gpt2", "--ranks", "64", "--machine", "a100-80gb", "--stages",
                         "hsdp", "--replicas", replicas, "--sweep", "ranks=32,64"}));
  };
  for (const char* replicas : {"2", "4", "8", "16"}) {
    CAPTURE(replicas);
    CHECK(hsdp(replicas).code == 0);
  }
  CHECK(hsdp("4").out != hsdp("8").out);
  CHECK(contains(hsdp("64").out, "\n  32"));
  CHECK(contains(hsdp("3").err, "hsdp"));
  CHECK(hsdp("3").code == 2);
}

}  // namespace cli
