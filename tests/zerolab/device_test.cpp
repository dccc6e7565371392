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

// Trains on GPUs that tests/cuda/on_cpu emulates. `machine` sets variables of controls.h there.
Finished on_emulator(const std::string& machine, const std::string& flags = "--device cuda") {
  return shell("env " + machine + " " + ZEROLAB_BINARY_ON_EMULATOR +
               " train --model tiny --steps 1 --sample 0 --ranks 2 --backend threads --json " +
               flags);
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

TEST_CASE("ranks take the GPUs that have memory and that no other process has to itself",
          "[zerolab]") {
  const auto says = [](const std::string& machine) { return on_emulator(machine).err; };
  const std::string four = "ZEROLAB_EMULATED_GPUS=4 ", first = ", rank r on GPU r mod 2";
  CHECK(contains(says(four), first));
  CHECK(contains(says(four + "ZEROLAB_EMULATED_FULL=0"), ", ranks take GPUs 1 2 in turn"));
  CHECK(contains(says(four + "ZEROLAB_EMULATED_FULL=0 ZEROLAB_EMULATED_OCCUPIED=1"),
                 ", ranks take GPUs 2 3 in turn"));
  CHECK_FALSE(contains(says(four + "ZEROLAB_EMULATED_FULL=0"), "warning:"));
  const std::string full = says(four + "ZEROLAB_EMULATED_FULL=0,1,2,3");
  CHECK(contains(full, first));
  CHECK(
      contains(full,
               "warning: other programs occupy the GPUs: free is 128.00 MiB of 1.00 GiB on GPU 0, "
               "128.00 MiB of 1.00 GiB on GPU 1;"));
  CHECK(contains(says(four + "ZEROLAB_EMULATED_FULL=0,2,3"),
                 "other programs occupy the GPUs: free is 128.00 MiB of 1.00 GiB on GPU 0;"));
}

TEST_CASE("where other processes have all GPUs, auto says how many there are", "[zerolab]") {
  const Finished told = on_emulator("ZEROLAB_EMULATED_OCCUPIED=0,1", "--device auto");
  CHECK(told.code == 0);
  CHECK(Json::parse(told.out)["device"] == "cpu");
  CHECK(contains(told.err,
                 "note: ranks compute on the CPU: none of 2 GPUs can be used; GPU 0 (a "
                 "GPU on the CPU): another process uses it"));
}

TEST_CASE("a program whose GPU compiles kernels for seconds says so at once", "[zerolab]") {
  const std::string line = "compiling kernels for GPU 0 from PTX: ";
  const auto says = [](const std::string& machine, const std::string& flags) {
    return on_emulator("ZEROLAB_EMULATED_GPUS=1 ZEROLAB_EMULATED_DIES_AFTER=1 " + machine,
                       "--device cuda " + flags)
        .err;
  };
  const std::string slow = says("ZEROLAB_EMULATED_LOAD_MS=300", "");
  CHECK(contains(slow, line + "this can take "));
  CHECK(contains(slow, line + "done after "));
  CHECK(slow.find(line + "this") == slow.rfind(line + "this"));  // once, for two ranks on the GPU
  CHECK_FALSE(contains(says("ZEROLAB_EMULATED_LOAD_MS=300", "-q"), line));
  CHECK_FALSE(contains(says("ZEROLAB_EMULATED_LOAD_MS=0", ""), line));
}

TEST_CASE("auto says why it does not use a GPU that is there, and how to fix it", "[zerolab]") {
  const std::string broken = "ZEROLAB_EMULATED_ERROR=802", why = "the GPUs are not ready",
                    fix = "How to fix it: install the version of nvidia-fabricmanager";
  const Finished told = on_emulator(broken, "--device auto");
  CHECK(told.code == 0);
  CHECK(Json::parse(told.out)["device"] == "cpu");
  CHECK(contains(told.err, "note: ranks compute on the CPU: " + why));
  CHECK(contains(told.err, fix));
  CHECK_FALSE(contains(on_emulator(broken, "--device auto -q").err, why));
  CHECK_FALSE(contains(on_emulator("ZEROLAB_EMULATED_ERROR=100", "--device auto").err, "note:"));
  const Finished refused = on_emulator(broken);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "nvidia-fabricmanager"));
  const Finished one = on_emulator("ZEROLAB_EMULATED_OCCUPIED=1", "--device auto");
  CHECK(one.code == 0);
  CHECK(contains(one.err, "note: GPU 1 (a GPU on the CPU) is not used: another process uses it"));
}

TEST_CASE("a warning names two GPUs between which data does not arrive, and training is right",
          "[zerolab]") {
  const auto losses = [](const Finished& finished) { return Json::parse(finished.out)["loss"]; };
  const Finished garbled = on_emulator("ZEROLAB_EMULATED_GPUS=6 ZEROLAB_EMULATED_FULL=0,1,2,3");
  CHECK(contains(garbled.err,
                 "warning: GPU 4 (0000:04:00.0) claims access to the memory of GPU 5 "
                 "(0000:05:00.0), but data does not arrive"));
  CHECK(contains(garbled.err, "IOMMU"));
  const Finished honest = on_emulator("ZEROLAB_EMULATED_GPUS=2");
  CHECK_FALSE(contains(honest.err, "warning:"));
  CHECK(losses(garbled) == losses(honest));
}

TEST_CASE("a kernel that accesses illegal memory ends the run with a message", "[zerolab]") {
  const Finished dead = on_emulator("ZEROLAB_EMULATED_DIES_AFTER=200");
  CHECK_FALSE(dead.timed_out);
  CHECK((dead.code > 0 && dead.code < 128));
  CHECK(contains(dead.err, "an illegal memory access was encountered"));
  CHECK(contains(dead.err, "compute-sanitizer"));
}

}  // namespace cli
