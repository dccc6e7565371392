// Where ranks compute and how they communicate: --device and --backend of train and compare.
// Without GPUs, but for two; through fakes where NCCL or a GPU runs.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kCompare = "compare --model tiny --steps 2 --ranks 3 -q";

// What two runs of the same numbers share.
Json timeless(const std::string& line) {
  Json json = Json::parse(document(line));
  for (Json& stage : json["stages"])
    for (const char* time : {"seconds_per_step", "communication_time"}) stage.erase(time);
  return json;
}

// Trains on GPUs that tests/cuda/on_cpu emulates. `machine` sets variables of controls.h there.
Finished on_emulator(const std::string& machine, const std::string& flags = "--device cuda") {
  return shell("env " + machine + " " + ZEROLAB_BINARY_ON_EMULATOR +
               " train --model tiny --steps 1 --sample 0 --ranks 2 --backend threads --json " +
               flags);
}
// What it says before the first kernels run; there the run ends.
std::string said_on_emulator(const std::string& machine, const std::string& flags = "") {
  return on_emulator("ZEROLAB_EMULATED_DIES_AFTER=1 " + machine, "--device cuda " + flags).err;
}

Finished on_gpu(const std::string& line) { return run({.arguments = words(line), .gpus = true}); }
bool gpu_here() { return Json::parse(on_gpu("doctor --json").out)["cuda"]["usable"]; }

int64_t communication_peak(const Json& stage) {
  for (const Json& row : stage["memory"])
    if (row["use"] == "communication") return row["predicted_peak_bytes"];
  return 0;
}

}  // namespace

TEST_CASE("where there is no GPU, auto is the CPU and threads, and says nothing about it",
          "[zerolab]") {
  const Finished automatic = call(kCompare);
  CHECK((automatic.code == 0 && automatic.err.empty()));
  const Json cpu = timeless(kCompare + " --device cpu --backend threads");
  CHECK((cpu["device"] == "cpu" && cpu["backend"] == "threads" && cpu["bits_promised"] == true));
  CHECK(cpu == timeless(kCompare));
  CHECK(cpu == timeless(kCompare + " --device auto --backend auto"));
  CHECK(cpu != timeless(kCompare + " --device cpu --seed 2"));
  const Finished told = call(tiny_run(1, "--json"));
  CHECK(Json::parse(told.out)["device"] == "cpu");
  CHECK_FALSE(contains(told.err, "device"));
}

TEST_CASE("--device reference trains and compares on textbook kernels, and the output says so",
          "[zerolab]") {
  const Json compared = timeless(kCompare + " --device reference");
  CHECK((compared["device"] == "reference" && compared["ok"] == true));
  Json cpu = timeless(kCompare + " --device cpu");
  CHECK(compared["stages"] != cpu["stages"]);  // other workspace, other last bits
  CHECK(contains(call(tiny_run(2, "--device reference")).err, "reference kernels, on one thread"));
  const Json plan = Json::parse(document("plan --model tiny --ranks 3 --as reference"));
  CHECK(plan["as"] == "reference");
  CHECK(plan["stages"] != Json::parse(document("plan --model tiny --ranks 3"))["stages"]);
  CHECK(contains(call("plan --model tiny --as reference").out, "as on the reference kernels"));
  const Finished threads = call(kCompare + " --device reference --threads 2");
  CHECK((threads.code == 2 && contains(threads.err, "run on one thread, so leave it out")));
}

TEST_CASE(
    "--device cuda without a GPU ends with 2 and names the problem and the cure that doctor names",
    "[zerolab]") {
  const Json cuda = Json::parse(document("doctor"))["cuda"];
  for (const std::string command : {"train", "compare"}) {
    const Finished refused = call(command + " --model tiny --steps 2 --device cuda");
    check_refused(refused, "--device cuda: " + cuda["problem"].get<std::string>());
    CHECK(contains(refused.err, cuda["cure"].get<std::string>()));
  }
}

TEST_CASE(
    "through NCCL compare keeps its promises to the byte, and demands no bits where NCCL adds as "
    "it likes",
    "[zerolab]") {
  const auto on_fake = [](const std::string& line) {  // with a fake where NCCL was
    const Finished run = shell(ZEROLAB_BINARY_ON_FAKE " " + line);
    INFO(run.err);
    CHECK(run.code == 0);
    return Json::parse(run.out);
  };
  const std::string compare = kCompare + " --device cpu --json ";
  const Json a = on_fake("launch -n 3 -- " + compare + "--backend nccl"),
             b = on_fake("launch -n 3 -- " + compare + "--set zerolab.ordered=false"),
             c = on_fake(compare);
  CHECK((a["backend"] == "nccl" && b["backend"] == "nccl" && c["backend"] == "threads"));
  CHECK((a["bits_promised"] == true && b["bits_promised"] == false && c["bits_promised"] == true));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(a["stages"][i]["weights_hash"] == c["stages"][0]["weights_hash"]);
    CHECK(communication_peak(a["stages"][i]) > communication_peak(b["stages"][i]));
    CHECK(communication_peak(b["stages"][i]) == communication_peak(c["stages"][i]));
  }
  const Json rates = on_fake(
      "launch -n 3 -- bench comm --backend nccl --device cpu --collective "
      "all_reduce,all_gather -f 1 -n 2 --json -q");
  CHECK((rates["backend"] == "nccl" && rates["ordered"] == true && rates["ok"] == true &&
         rates["results"].size() == 2));
}

TEST_CASE("zerolab.ordered is noted, and changes nothing among threads", "[zerolab]") {
  const std::string line = tiny_run(2, "--ranks 3 --json --set zerolab.ordered=");
  const Finished free = call(line + "false"), ordered = call(line + "true");
  CHECK(contains(free.err, "note: false lets NCCL choose the order"));
  CHECK_FALSE(contains(ordered.err, "NCCL"));
  CHECK(Json::parse(free.out)["loss"] == Json::parse(ordered.out)["loss"]);
}

TEST_CASE("on GPUs all stages keep their promises, and the run says where it computes",
          "[zerolab]") {
  if (!gpu_here()) SKIP("no GPU can be used here");
  const Finished finished = on_gpu("compare --model tiny --steps 2 --ranks 3 --json");
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(contains(finished.err, "device  cuda, "));
  const Json json = Json::parse(finished.out);
  CHECK((json["device"] == "cuda" && json["ok"] == true));
}

TEST_CASE("--tf32 changes bits of fp32 on a GPU, and is said to change none of bf16", "[zerolab]") {
  if (!gpu_here()) SKIP("no GPU can be used here");
  const auto train = [](const char* flags) {
    return on_gpu(tiny_run(3, std::string("--json --device cuda ") + flags));
  };
  const auto loss = [](const Finished& finished) { return Json::parse(finished.out)["loss"]; };
  CHECK(loss(train("")) == loss(train("")));
  CHECK(loss(train("")) != loss(train("--tf32")));
  const Finished bf16 = train("--precision bf16 --tf32");
  CHECK(contains(bf16.err, "note: --tf32 has no effect in bf16"));
  CHECK(loss(bf16) == loss(train("--precision bf16")));
}

TEST_CASE("ranks take the GPUs that have memory and that no other process has to itself",
          "[zerolab]") {
  for (const auto& [machine, gpus] :
       {std::pair{"", "0 1"},
        {"ZEROLAB_EMULATED_FULL=0", "1 2"},
        {"ZEROLAB_EMULATED_FULL=0 ZEROLAB_EMULATED_OCCUPIED=1", "2 3"},
        {"ZEROLAB_EMULATED_FULL=0,1,2,3", "0 1"}})
    check_says(said_on_emulator(std::string("ZEROLAB_EMULATED_GPUS=4 ") + machine),
               {std::string(", ranks take GPUs ") + gpus + " in turn"});
}

TEST_CASE("where other processes have all GPUs, auto says how many there are", "[zerolab]") {
  const Finished told = on_emulator("ZEROLAB_EMULATED_OCCUPIED=0,1", "--device auto");
  CHECK(told.code == 0);
  CHECK(Json::parse(told.out)["device"] == "cpu");
  check_says(told.err, {"note: ranks compute on the CPU: none of 2 GPUs can be used; GPU 0 (a "
                        "GPU on the CPU): another process uses it"});
}

TEST_CASE("auto says why it does not use a GPU that is there, and how to fix it", "[zerolab]") {
  const std::string broken = "ZEROLAB_EMULATED_ERROR=802", why = "the GPUs are not ready",
                    fix = "How to fix it: install the version of nvidia-fabricmanager";
  const Finished told = on_emulator(broken, "--device auto");
  CHECK(told.code == 0);
  CHECK(Json::parse(told.out)["device"] == "cpu");
  check_says(told.err, {"note: ranks compute on the CPU: " + why, fix});
  CHECK_FALSE(contains(on_emulator(broken, "--device auto -q").err, why));
  CHECK_FALSE(contains(on_emulator("ZEROLAB_EMULATED_ERROR=100", "--device auto").err, "note:"));
  check_refused(on_emulator(broken), "nvidia-fabricmanager");
  const Finished one = on_emulator("ZEROLAB_EMULATED_OCCUPIED=1", "--device auto");
  CHECK(one.code == 0);
  check_says(one.err, {"note: GPU 1 (a GPU on the CPU) is not used: another process uses it"});
}

TEST_CASE("a warning names two GPUs between which data does not arrive, and training is right",
          "[zerolab]") {
  const auto losses = [](const Finished& finished) { return Json::parse(finished.out)["loss"]; };
  const Finished garbled = on_emulator("ZEROLAB_EMULATED_GPUS=6 ZEROLAB_EMULATED_FULL=0,1,2,3");
  check_says(garbled.err, {"warning: GPU 4 (0000:04:00.0) claims access to the memory of GPU 5 "
                           "(0000:05:00.0), but data does not arrive",
                           "IOMMU"});
  const Finished honest = on_emulator("ZEROLAB_EMULATED_GPUS=2");
  CHECK_FALSE(contains(honest.err, "warning:"));
  CHECK(losses(garbled) == losses(honest));
}

TEST_CASE("a kernel that accesses illegal memory ends the run with a message", "[zerolab]") {
  const Finished dead = on_emulator("ZEROLAB_EMULATED_DIES_AFTER=200");
  CHECK_FALSE(dead.timed_out);
  CHECK((dead.code > 0 && dead.code < 128));
  check_says(dead.err, {"an illegal memory access was encountered", "compute-sanitizer"});
}

}  // namespace cli
