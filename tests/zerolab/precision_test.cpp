// Mixed precision and offload in the program.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/nn/scratch_folder.h"
#include "tests/zerolab/process.h"

using namespace cli;

namespace {

Finished train(const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"train", "--model", "tiny", "--sample", "0"};
  all.insert(all.end(), flags.begin(), flags.end());
  return zerolab(all);
}

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

}  // namespace

TEST_CASE("the configurations of both articles train as they are, and all stages agree under them",
          "[zerolab]") {
  const ScratchFolder scratch;
  const std::string offload = write_file(scratch / "offload.json", kOffload);
  const Finished finished = train({"--config", offload, "--ranks", "4", "--steps", "3", "--json"});
  CHECK(finished.code == 0);
  CHECK(contains(finished.err, "zero2 on 4 ranks"));
  CHECK(contains(finished.err, "optimizer on the host"));
  const auto json = nlohmann::json::parse(finished.out);
  bool host_state = false, device_state = false;
  for (const auto& row : json["memory"]) {
    if (row["use"] != "optimizer_state") continue;
    host_state = host_state || row["pool"] == "host";
    device_state = device_state || row["pool"] == "device";
  }
  CHECK(host_state);
  CHECK_FALSE(device_state);
  for (const int stage : {1, 2, 3}) {
    const std::string file =
        write_file(scratch / ("half" + std::to_string(stage) + ".json"), half(stage));
    const Finished run = train({"--config", file, "--ranks", "4", "--steps", "3"});
    CHECK(run.code == 0);
    CHECK(contains(run.err, "zero" + std::to_string(stage) + " on 4 ranks"));
    CHECK(contains(run.err, "B 8 × A 1 × N 4; fp16"));
  }
  for (const char* file : {"offload.json", "half3.json"}) {
    const Finished compared = zerolab({"compare", "--model", "tiny", "--config", scratch / file,
                                       "--ranks", "4", "--steps", "3", "--json"});
    CHECK(compared.code == 0);
    CHECK(nlohmann::json::parse(compared.out)["ok"] == true);
  }
}

TEST_CASE("metrics of fp16 hold the loss scale of each step, those of fp32 none", "[zerolab]") {
  const ScratchFolder scratch;
  const std::string power = "fp16.initial_scale_power=30";  // overflows at once
  CHECK(train({"--precision", "fp16", "--set", power, "--set", "fp16.hysteresis=1", "--steps", "3",
               "--out", scratch / "half"})
            .code == 0);
  const auto half = lines(read_file(scratch / "half/metrics.jsonl"));
  REQUIRE(half.size() == 3);
  const auto first = nlohmann::json::parse(half[0]), second = nlohmann::json::parse(half[1]);
  CHECK(first["loss_scale"] == 1073741824.0);
  CHECK(first["skipped"] == true);
  CHECK(first["grad_norm"].is_null());
  CHECK(second["loss_scale"] == 536870912.0);
  CHECK(train({"--precision", "fp16", "--set", "fp16.loss_scale=1", "--steps", "1", "--out",
               scratch / "one"})
            .code == 0);
  CHECK(nlohmann::json::parse(lines(read_file(scratch / "one/metrics.jsonl"))[0])["loss_scale"] ==
        1.0);  // 1 is a scale too
  CHECK(train({"--steps", "1", "--out", scratch / "full"}).code == 0);
  CHECK_FALSE(nlohmann::json::parse(lines(read_file(scratch / "full/metrics.jsonl"))[0])
                  .contains("loss_scale"));
}

TEST_CASE("a run in bf16 saves its master weights: more than bf16 can hold", "[zerolab]") {
  const ScratchFolder scratch;
  REQUIRE(train({"--precision", "bf16", "--stage", "zero3", "--ranks", "3", "--steps", "2", "--out",
                 scratch / "run"})
              .code == 0);
  const std::string file = read_file(scratch / "run/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const auto tensors = nlohmann::json::parse(file.substr(8, header));
  const auto& wte = tensors["wte.weight"];
  CHECK(wte["dtype"] == "F32");
  int beyond = 0;
  for (size_t i = 0; i < 1000; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, file.data() + 8 + header + size_t(wte["data_offsets"][0]) + 4 * i, 4);
    beyond += (bits & 0xffffu) != 0;
  }
  CHECK(beyond > 900);
}

TEST_CASE("the first non-finite gradient of a skipped step is named, with the loss scale",
          "[zerolab]") {
  const Finished finished = train({"--precision", "fp16", "--set", "fp16.initial_scale_power=30",
                                   "--ranks", "2", "--steps", "1"});
  CHECK(finished.code == 0);
  CHECK(contains(finished.err,
                 "step 1: the gradient of wte.weight is not finite on rank 0; no rank made this "
                 "step; loss scale 1.07374e+09"));
  CHECK(contains(finished.out, "1 of 1 steps"));
}

TEST_CASE("a loss scale that cannot fall any further ends the run with 1 and what to try",
          "[zerolab]") {
  const Finished finished = train({"--precision", "fp16", "--set", "fp16.initial_scale_power=30",
                                   "--set", "fp16.min_loss_scale=1073741824", "--set",
                                   "fp16.hysteresis=1", "--steps", "5", "--ranks", "2", "-q"});
  CHECK(finished.code == 1);
  CHECK(lines(finished.err).size() == 1);
  CHECK(contains(finished.err, "zerolab: the loss scale is at its minimum"));
}

TEST_CASE("too little memory is reported before anything starts", "[zerolab]") {
  const Finished host =
      train({"--stage", "zero2", "--ranks", "2", "--set",
             "zero_optimization.offload_optimizer.device=cpu", "--host-memory", "10KiB"});
  CHECK(host.code == 3);
  CHECK(contains(host.err, "out of host memory"));
  CHECK_FALSE(contains(host.err, "step 1"));
  const Finished machine =
      zerolab({"train", "--model", "gpt2-xl", "--ranks", "64", "--stage", "ddp"});
  CHECK(machine.code == 3);
  CHECK(contains(machine.err, "ddp needs "));
  CHECK(contains(machine.err, "on 64 ranks, but this machine has"));
  CHECK(machine.seconds < 20);
}

TEST_CASE("compare reports host memory beside the device's, measured and predicted", "[zerolab]") {
  const Finished finished =
      zerolab({"compare", "--model", "tiny", "--ranks", "3", "--steps", "2", "--precision", "bf16",
               "--json", "--set", "zero_optimization.offload_optimizer.device=cpu"});
  CHECK(finished.code == 0);
  const auto json = nlohmann::json::parse(finished.out);
  CHECK(json["precision"] == "bf16");
  for (const auto& stage : json["stages"]) {
    const bool ddp = stage["stage"] == "ddp";
    CHECK(stage.contains("peak_host_bytes") != ddp);
    if (!ddp) CHECK(stage["peak_host_bytes"] == stage["predicted_peak_host_bytes"]);
  }
}

TEST_CASE(
    "--offload nvme keeps the optimizer in a file, with the bits and bytes that are predicted",
    "[zerolab]") {
  const zl::ScratchFolder folder;
  const Finished finished =
      zerolab({"compare", "--model", "tiny", "--ranks", "3", "--steps", "2", "--precision", "bf16",
               "--json", "--offload", "nvme", "--nvme-path", folder.path(""), "--set",
               "zero_optimization.sub_group_size=2048"});
  CHECK(finished.code == 0);
  CHECK(folder.names().empty());
  const auto json = nlohmann::json::parse(finished.out);
  for (const auto& stage : json["stages"]) {
    int64_t on_disk = 0, buffers = 0;
    for (const auto& row : stage["memory"]) {
      if (row["rank"] != 0) continue;
      if (row["pool"] == "disk") on_disk += row["rest_bytes"].get<int64_t>();
      const bool state = row["use"] == "optimizer_state" || row["use"] == "master_weights";
      if (row["pool"] == "host" && state) buffers += row["peak_bytes"].get<int64_t>();
    }
    CHECK(on_disk == (stage["stage"] == "ddp" ? 0 : 172'032));
    CHECK(buffers == (stage["stage"] == "ddp" ? 0 : 73'728));
  }
}

TEST_CASE("a folder for nvme that is missing or not given is an error before the run",
          "[zerolab]") {
  const Finished none = train({"--stage", "zero1", "--offload", "nvme"});
  CHECK((none.code == 2 && contains(none.err, "nvme needs nvme_path")));
  const Finished absent =
      train({"--stage", "zero1", "--offload", "nvme", "--nvme-path", "/absent/folder"});
  CHECK((absent.code == 2 && contains(absent.err, "/absent/folder is not a folder")));
  CHECK(train({"--stage", "zero1", "--offload", "disk"}).code == 2);
}

// /proc has no space left; only root may try to make files there.
TEST_CASE("a disk that is too small for all ranks ends the run before it starts", "[zerolab]") {
  const std::string full = "/proc";
  if (::access(full.c_str(), W_OK | X_OK) != 0) SKIP("no folder without space is at hand");
  for (const char* command : {"train", "compare"}) {
    const Finished run =
        zerolab({command, "--model", "tiny", "--ranks", "3", "--steps", "1", "--set",
                 "zero_optimization.stage=2", "--set", "zero_optimization.sub_group_size=2048",
                 "--offload", "nvme", "--nvme-path", full});
    INFO(run.err);
    CHECK(run.code == 2);
    for (const char* part : {"needs 114688 bytes of disk space per rank", "344064", "on 3 ranks",
                             "/proc has 0", "nothing was started"})
      CHECK(contains(run.err, part));
    CHECK_FALSE(contains(run.err, "step 1"));
  }
}

TEST_CASE("nothing is left of a run on disk that is killed", "[zerolab]") {
  const zl::ScratchFolder folder;
  const Finished killed = run({.arguments = {"train", "--model", "tiny", "--ranks", "2", "--stage",
                                             "zero2", "--steps", "1000000", "--sample", "0",
                                             "--offload", "nvme", "--nvme-path", folder.path("")},
                               .environment = {},
                               .watch = [](pid_t process, const std::string& err) {
                                 if (contains(err, "step ")) ::kill(process, SIGKILL);
                               }});
  CHECK(killed.code == 128 + SIGKILL);
  CHECK(folder.names().empty());
}
