// What plan says: what fits, what overlap and reproducible sums cost, and where ranks compute.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

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

}  // namespace

TEST_CASE("plan says what fits in text and exit code", "[zerolab]") {
  const Finished open = call("plan --model gpt2 --ranks 8");
  CHECK(open.code == 0);
  check_says(open.out,
             {"124,439,808 parameters", "To see which stages fit, give --device-memory SIZE"});
  const Finished fits = call("plan --model gpt2 --ranks 8 --device-memory 5GiB");
  CHECK(fits.code == 0);
  CHECK(contains(fits.out, "Take "));
  CHECK(call("plan --model gpt2 --device-memory 1MiB").code == 3);
  CHECK(contains(call("plan --parameters 7.5e9 --ranks 64 --precision bf16").out, "1.875 GB"));
}

// The bytes are those of tests/stages/predict.
TEST_CASE("plan tells what overlap and reproducible sums cost, where they are chosen",
          "[zerolab]") {
  const std::string plan = "plan --model tiny --ranks 2",
                    overlap = plan +
                              " --set zero_optimization.overlap_comm=true --set "
                              "zero_optimization.stage3_prefetch_bucket_size=1 --set "
                              "zero_optimization.max_reuse_distance=1";
  const std::string without = call(plan).out, with = call(overlap).out;
  for (const char* word : {"overlap", "reproducible"}) CHECK_FALSE(contains(without, word));
  check_says(with, {"\nzero2, overlap and prefetch: +50,816 B of gradients; the peak",
                    "\nzero3, overlap and prefetch: +50,816 B of gradients, +50,816 B of "
                    "parameters, -25,408 B sent per step; the peak"});
  CHECK_FALSE(contains(with, "reproducible"));
  CHECK(Json::parse(document(overlap))["stages"][3]["overlap_cost"]["gradient_bytes"] == 50'816);
  // Units of 9,280 and twice 12,704 elements become 10,240 and twice 14,336.
  check_says(call(plan + " --set zerolab.reproducible=true").out,
             {"\nddp, reproducible sums: +67,584 B in steady state, "});
}

TEST_CASE(
    "plan --as cuda differs from --as cpu in workspace and in the peaks that hold it, and in "
    "nothing else",
    "[zerolab]") {
  const std::string small = "plan --model small";
  const Json cpu = Json::parse(document(small + " --as cpu")),
             cuda = Json::parse(document(small + " --as cuda"));
  CHECK(cpu == Json::parse(document(small)));
  CHECK((cpu["as"] == "cpu" && cuda["as"] == "cuda"));
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
  CHECK(contains(call("plan --model tiny --as cuda").out, "as on GPUs"));
  // The bytes of NCCL's scratch: tests/nccl.
  CHECK(contains(call("plan --model tiny --backend nccl").out, "as on GPUs with NCCL"));
  for (const char* flags : {"", " --backend threads"})
    CHECK(call(std::string("plan --parameters 1e9") + flags).code == 0);
}

TEST_CASE("plan says what a checkpoint takes, and a run takes that", "[zerolab]") {
  // Psi = 34,688; padded to 16 per parameter and 48 per unit: 34,752 for 3 ranks.
  const auto of = [](const std::string& more) {
    return Json::parse(document("plan --model tiny --ranks 3 --stages zero3 " + more))["stages"][0];
  };
  const Json bytes = of("")["checkpoint"];
  CHECK(bytes["disk_bytes"] == 12 * 34688);
  CHECK(bytes["host_bytes"] == Json{{"wait", 0}, {"still", 0}, {"snapshot", 12 * 34752 / 3}});
  CHECK(of("--set optimizer.type=SGD")["checkpoint"]["disk_bytes"] == 4 * 34688);
  const std::string save = "--save-every 1 --checkpoint-writes ";
  for (const std::string& none : {std::string(), save + "still"})
    CHECK_FALSE(of(none).contains("predicted_peak_host_bytes"));
  CHECK(of(save + "snapshot")["predicted_peak_host_bytes"][0] == 12 * 34752 / 3);
  CHECK(of(save + "still --as cuda")["predicted_peak_host_bytes"][0] == 1 << 20);
  check_says(call("plan --model tiny --ranks 3").out, {"a checkpoint on disk ", "406.50 KiB"});

  const ScratchFolder folder;
  int64_t host = 0;
  const Json report = Json::parse(
      document(tiny_run(3, save + "snapshot --stage 3 --ranks 3 --out ") + (folder / "run")));
  for (const Json& row : report["memory"])
    if (row["pool"] == "host" && row["rank"] == 0) host += row["peak_bytes"].get<int64_t>();
  CHECK(host == 12 * 34752 / 3);
}

}  // namespace cli
