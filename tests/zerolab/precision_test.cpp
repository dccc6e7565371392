// Mixed precision and offload in the program.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

// The two articles that the project starts from, as they have them.
constexpr const char* kOffload = R"({
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {
      "device": "cpu",
      "pin_memory": true
    },
    "allgather_partitions": true,
    "allgather_bucket_size": 2e8,
    "overlap_comm": true,
    "reduce_scatter": true,
    "reduce_bucket_size": 2e8,
    "contiguous_gradients": true
  }
})";

std::string half(int stage) {
  return R"({"zero_optimization": {"stage": )" + std::to_string(stage) +
         R"(}, "fp16": {"enabled": true}, "train_batch_size": 32, )" +
         R"("gradient_accumulation_steps": 1})";
}

const std::string kTrain = "train --model tiny --sample 0 ";
const std::string kTooHigh = "--precision fp16 --set fp16.initial_scale_power=30 ";  // overflows
const std::string kCpu = " --set zero_optimization.offload_optimizer.device=cpu ",
                  kBoth = " --set zero_optimization.offload_param.device=cpu" + kCpu;

Json step_of(const std::string& folder, size_t i) {
  return Json::parse(lines(read_file(folder + "/metrics.jsonl")).at(i));
}

Json zero3_plan(const std::string& more) {
  return Json::parse(document("plan --model tiny --ranks 3 --stages zero3 " + more))["stages"][0];
}
Finished zero3(const std::string& more) {
  return call(kTrain + "--stage zero3 --ranks 3 --steps 2 " + more);
}
int64_t peak_of(const Json& stage) {
  return std::max(stage["predicted_peak_total_bytes"][0].get<int64_t>(),
                  stage["predicted_init_peak_total_bytes"][0].get<int64_t>());
}

}  // namespace

TEST_CASE("the configurations of both articles train as they are, and all stages agree under them",
          "[zerolab]") {
  const ScratchFolder scratch;
  const std::string offload = write_file(scratch / "offload.json", kOffload);
  const Finished finished = call(kTrain + "--ranks 4 --steps 3 --json --config " + offload);
  CHECK(finished.code == 0);
  check_says(finished.err, {"zero2 on 4 ranks", "offload_optimizer.device=\"cpu\""});
  for (const Json rows = Json::parse(finished.out)["memory"]; const Json& row : rows)
    if (row["use"] == "optimizer_state") CHECK(row["pool"] == "host");
  CHECK(contains(finished.out, "optimizer_state"));
  for (const int stage : {1, 2, 3}) {
    const std::string n = std::to_string(stage),
                      file = write_file(scratch / ("half" + n + ".json"), half(stage));
    const Finished run = call(kTrain + "--ranks 4 --steps 3 --config " + file);
    CHECK(run.code == 0);
    check_says(run.err, {"zero" + n + " on 4 ranks", "B 8 × A 1 × N 4; fp16"});
  }
  for (const char* file : {"offload.json", "half3.json"})
    CHECK(Json::parse(document("compare --model tiny --ranks 4 --steps 3 --config " +
                               (scratch / file)))["ok"] == true);
}

TEST_CASE("metrics of fp16 hold the loss scale of each step, those of fp32 none", "[zerolab]") {
  const ScratchFolder scratch;
  const auto run = [&](const char* name, const std::string& flags) {
    REQUIRE(call(kTrain + flags + " --out " + (scratch / name)).code == 0);
    return scratch / name;
  };
  const std::string falls = run("half", kTooHigh + "--set fp16.hysteresis=1 --steps 3");
  REQUIRE(metrics_of(falls).size() == 3);
  const Json first = step_of(falls, 0), second = step_of(falls, 1);
  CHECK((first["loss_scale"] == 1073741824.0 && first["skipped"] == true));
  CHECK(first["grad_norm"].is_null());
  CHECK(second["loss_scale"] == 536870912.0);
  const std::string one = run("one", "--precision fp16 --set fp16.loss_scale=1 --steps 1");
  CHECK(step_of(one, 0)["loss_scale"] == 1.0);  // 1 is a scale too
  CHECK_FALSE(step_of(run("full", "--steps 1"), 0).contains("loss_scale"));
}

TEST_CASE("a run in bf16 saves its master weights: more than bf16 can hold", "[zerolab]") {
  const ScratchFolder scratch;
  REQUIRE(
      call(kTrain + "--precision bf16 --stage zero3 --ranks 3 --steps 2 --out " + (scratch / "run"))
          .code == 0);
  const std::string file = weights_of(scratch / "run");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const Json wte = Json::parse(file.substr(8, header))["wte.weight"];
  CHECK(wte["dtype"] == "F32");
  int beyond = 0;
  for (size_t i = 0; i < 1000; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, file.data() + 8 + header + size_t(wte["data_offsets"][0]) + 4 * i, 4);
    beyond += (bits & 0xffffu) != 0;
  }
  CHECK(beyond > 900);
}

TEST_CASE(
    "skipped steps are named with the loss scale, and a run that cannot lower it says what "
    "to try",
    "[zerolab]") {
  const Finished skipped = call(kTrain + kTooHigh + "--ranks 2 --steps 1");
  CHECK(skipped.code == 0);
  check_says(skipped.err, {"step 1: the gradient of wte.weight is not finite on rank 0; no rank "
                           "made this step; loss scale 1.07374e+09"});
  CHECK(contains(skipped.out, "1 of 1 steps"));

  const ScratchFolder folder;
  const std::string least = kTooHigh + "--set fp16.min_loss_scale=1073741824 --steps 5 -q ";
  const Finished ended = call(kTrain + least + "--set fp16.hysteresis=1 --ranks 2");
  check_refused(ended, "zerolab: the loss scale is at its minimum", 1);
  CHECK(lines(ended.err).size() == 1);
  const Finished kept = call(kTrain + least + "--set fp16.hysteresis=2 --out " + (folder / "a"));
  CHECK(kept.code == 1);
  CHECK(contains(kept.err, "metrics.jsonl holds the steps so far"));

  // A fixed scale is never lowered, so a run that skips every step has failed, too.
  const Finished fixed = train(2, "--precision fp16 --set fp16.loss_scale=1e30");
  CHECK(fixed.code == 1);
  CHECK(contains(fixed.out, "try a smaller fp16.loss_scale than the fixed 1e+30\n"));
  const Finished searching = train(2, "--precision fp16 --set fp16.initial_scale_power=40");
  CHECK(searching.code == 0);
  CHECK_FALSE(contains(searching.err + searching.out, "fixed"));
}

TEST_CASE("compare, plan and train report the same moves, as predicted", "[zerolab][moves]") {
  const std::string flags = "--set gradient_accumulation_steps=2 --precision bf16" + kBoth;
  // As tests/stages/predict has them; here that all three commands report the same.
  const Json plan = zero3_plan(flags)["moves"];
  const Finished trained = zero3(flags + "--json"), text = zero3(flags);
  REQUIRE(trained.code == 0);
  const Json moves = Json::parse(trained.out)["moves"],
             stages = Json::parse(document(
                 "compare --model tiny --ranks 3 --steps 2 --stages zero3 " + flags))["stages"];
  REQUIRE((plan.size() == 2 && moves.size() == 2 * 3));
  for (const Json& stage : stages) {
    CHECK(stage.contains("moves") == (stage["stage"] != "ddp"));
    CHECK(stage.contains("peak_host_bytes") == (stage["stage"] != "ddp"));
    if (stage["stage"] != "zero3") continue;
    CHECK(stage["peak_host_bytes"] == stage["predicted_peak_host_bytes"]);
    REQUIRE(stage["moves"].size() == 2 * 3);
    for (const Json& row : stage["moves"]) {
      CHECK(row["bytes_per_step"] == row["predicted_bytes_per_step"]);
      CHECK(row["moves_per_step"] == row["predicted_moves_per_step"]);
      const Json& planned = plan[row["move"] == "host to device" ? 0 : 1];
      CHECK((planned["move"] == row["move"] &&
             planned["predicted_bytes_per_step"] == row["bytes_per_step"]));
      CHECK(std::ranges::any_of(moves, [&](const Json& other) {
        return other["rank"] == row["rank"] && other["move"] == row["move"] &&
               other["bytes_per_step"] == row["bytes_per_step"];
      }));
    }
  }
  CHECK(contains(text.err, "offload_param.device=\"cpu\""));
}

TEST_CASE(
    "what plan predicts for host and device is enough to the byte; with one less nothing is "
    "started",
    "[zerolab][moves]") {
  const Json stage = zero3_plan(kBoth);
  const int64_t host = stage["predicted_peak_host_bytes"][0], device = peak_of(stage);
  const std::string limit = "--host-memory ";
  CHECK(zero3(kBoth + limit + std::to_string(host)).code == 0);
  const Finished less = zero3(kBoth + limit + std::to_string(host - 1));
  CHECK(less.code == 3);
  check_says(less.err,
             {std::to_string(host) + " bytes) of host memory per rank", "--host-memory is",
              std::to_string(host - 1) + " bytes", "nothing was started"});
  CHECK_FALSE(contains(less.err, "step 1"));
  // With its state on the host a model fits that does not without.
  REQUIRE(device < peak_of(zero3_plan("")));
  const std::string fits = "--device-memory " + std::to_string(device);
  CHECK(zero3(fits).code == 3);
  CHECK(zero3(fits + kBoth).code == 0);
  CHECK(zero3("--device-memory " + std::to_string(device - 1) + kBoth).code == 3);
}

// zero3 with both on the host, N 3: (4 + 4 + 8) * 34,752 / 3 bytes, and in the update of a block
// the reduced gradient shard, 4 * 12,720 / 3.
TEST_CASE("plan and compare say what does not fit the host's limit, with the bytes",
          "[zerolab][moves]") {
  constexpr int64_t kHost = 185'344 + 16'960;
  const auto limited = [](const std::string& command, int64_t bytes) {
    return call(command + " --model tiny --ranks 3 --stages zero3 --host-memory " +
                std::to_string(bytes) + kBoth);
  };
  const Finished fits = limited("plan", kHost), less = limited("plan", kHost - 1);
  CHECK((fits.code == 0 && less.code == 3));
  check_says(fits.out, {"fits 197.56 KiB of the host", "yes, 0 B left"});
  check_says(less.out, {"no, 1 B short", "No stage fits. The smallest, zero3, needs",
                        "and 197.56 KiB of host memory. Try"});
  const Finished compared = limited("compare", 102'400);
  CHECK(compared.code == 3);
  check_says(compared.out,
             {"zero3 does not fit: rank ", " is out of host memory in initialize, unit ",
              ", the limit is 100.00 KiB ", "in use 98.19 KiB = "});
}

TEST_CASE(
    "nvme keeps the optimizer in a file, with the bits and bytes that are predicted; "
    "nothing is left, also of a run that is killed",
    "[zerolab]") {
  const ScratchFolder folder;
  const std::string nvme =
      " --set zero_optimization.offload_optimizer.device=nvme"
      " --set zero_optimization.offload_optimizer.nvme_path=" +
      folder.path();
  const Json json =
      Json::parse(document("compare --model tiny --ranks 3 --steps 2 --precision bf16" + nvme +
                           " --set zero_optimization.sub_group_size=2048"));
  CHECK(files_in(folder.path()).empty());
  for (const Json& stage : json["stages"]) {
    int64_t on_disk = 0, buffers = 0;
    for (const Json& row : stage["memory"]) {
      if (row["rank"] != 0) continue;
      if (row["pool"] == "disk") on_disk += row["rest_bytes"].get<int64_t>();
      const bool state = row["use"] == "optimizer_state" || row["use"] == "master_weights";
      if (row["pool"] == "host" && state) buffers += row["peak_bytes"].get<int64_t>();
    }
    CHECK(on_disk == (stage["stage"] == "ddp" ? 0 : 172'032));
    CHECK(buffers == (stage["stage"] == "ddp" ? 0 : 73'728));
  }
  const Finished killed =
      stopped_at("step ", SIGKILL, tiny_run(1'000'000, "--ranks 2 --stage zero2" + nvme));
  CHECK(killed.code == 128 + SIGKILL);
  CHECK(files_in(folder.path()).empty());
}

// /proc has no space left; only root may try to make files there.
TEST_CASE("a disk that is too small for all ranks ends the run before it starts", "[zerolab]") {
  if (::access("/proc", W_OK | X_OK) != 0) SKIP("no folder without space is at hand");
  for (const std::string command : {"train", "compare"}) {
    const Finished run = call(command +
                              " --model tiny --ranks 3 --steps 1 --set "
                              "zero_optimization.stage=2 --set "
                              "zero_optimization.sub_group_size=2048 "
                              "--set zero_optimization.offload_optimizer.device=nvme "
                              "--set zero_optimization.offload_optimizer.nvme_path=/proc");
    CHECK(run.code == 2);
    check_says(run.err, {"(114688 bytes) of disk space per rank", "(344064 bytes) on 3 ranks",
                         "/proc still has 0 B", "nothing was started"});
    CHECK_FALSE(contains(run.err, "step 1"));
  }
}

}  // namespace cli
