// What plan says: what fits, what is fastest, and where ranks compute.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "stages/predict/clock/machine.h"
#include "tests/zerolab/command.h"

namespace cli {
using Json = nlohmann::json;
namespace {

const std::string kPlan = "plan --precision bf16 ";

Finished plan(const std::string& flags) { return call(kPlan + flags); }
Json plan_document(const std::string& flags) { return Json::parse(document(kPlan + flags)); }

}  // namespace

TEST_CASE("plan --machine takes the fastest stage where the clock can tell", "[zerolab]") {
  const std::string flags = "--model gpt2-xl --ranks 8 --machine a100-80gb --overlap on";
  const Json stages = plan_document(flags)["stages"];
  const auto& fastest = *std::ranges::min_element(
      stages, {}, [](const Json& s) { return s["seconds_per_step"].get<double>(); });
  const std::string text = plan(flags).out;
  CHECK(contains(text,
                 "\n" + fastest["stage"].get<std::string>() + " is the fastest that fits, with "));
  CHECK(contains(text, " longer, which is within the expected error.\n"));
  CHECK_FALSE(contains(text, "Take "));
  // Over Ethernet zero3 takes a third longer than zero1.
  CHECK(contains(plan("--model gpt2-xl --ranks 64 --machine h100-pcie --stages zero1,zero3").out,
                 "\nzero1 is the fastest that fits, with "));
  // Without a machine there are no times.
  const std::string none = plan("--model gpt2-xl --ranks 8 --device-memory 80GB").out;
  CHECK(contains(none, "the first that fits"));
  CHECK_FALSE(contains(none, "the fastest that fits"));
}

TEST_CASE("plan --machine counts host memory and disk of what is offloaded", "[zerolab]") {
  const ScratchFolder folder;
  zl::Machine m = zl::find_machine("a100-80gb");
  const auto finished = [&](const std::string& where) {
    const std::string file = write_file(folder / "m.json", zl::machine_json(m));
    return plan("--model gpt2 --ranks 8 --stages zero1 --machine " + file +
                " --set zero_optimization.offload_optimizer.device=" + where +
                " --set zero_optimization.offload_optimizer.nvme_path=" + folder.path());
  };
  CHECK(finished("cpu").code == 0);
  m.host.memory_bytes = 1e9;  // of 12 bytes of 124 million parameters
  const Finished small = finished("cpu");
  CHECK(small.code == 3);
  check_says(small.out, {"No stage fits.", "\nzero1 does not fit: too little host memory.\n"});
  m.host.memory_bytes = 2e12, m.host.disk_bytes = 1e9;
  const Finished disk = finished("nvme");
  CHECK(disk.code == 3);
  CHECK(contains(disk.out, "does not fit: too little disk.\n"));
}

TEST_CASE("plan --machines lists the same machines as text and as JSON", "[zerolab]") {
  const Json list = Json::parse(document("plan --machines"));
  const std::string text = call("plan --machines").out;
  REQUIRE(list["machines"].size() == zl::shipped_machines().size());
  for (const Json& m : list["machines"])
    CHECK(contains(text, "  " + m["name"].get<std::string>() + " "));
}

TEST_CASE("plan --advise tries hsdp by itself, and with --stages only those", "[zerolab]") {
  const auto stages = [](const std::string& more) {
    const Json advice =
        plan_document("--model gpt2 --ranks 1024 --machine h100-sxm --advise " + more)["advice"];
    Words all = {advice["fastest"]["stage"]};
    for (const Json& other : advice["others"]) all.push_back(other["stage"]);
    return all;
  };
  CHECK(std::ranges::count(stages(""), "hsdp") > 0);
  CHECK(std::ranges::count(stages("--stages zero1,zero2"), "hsdp") == 0);
  for (const std::string& stage : stages("--stages zero2")) CHECK(stage == "zero2");
  CHECK_FALSE(stages("--stages all").empty());    // some of them refuse offload
  CHECK_FALSE(stages("--reproducible").empty());  // hsdp refuses it
}

TEST_CASE("the reason for which settings lose is the time that they take longer", "[zerolab]") {
  const Json advice =
      plan_document("--model gpt2-xl --ranks 16 --machine a100-80gb --advise")["advice"];
  REQUIRE(advice["others"].size() == 3);
  for (const Json& other : advice["others"]) {
    const std::string reason = other["reason"];
    CAPTURE(reason);
    REQUIRE(other["fits"] == true);
    const double longer = std::stod(reason);
    CHECK(longer == Catch::Approx(1e3 * (other["seconds_per_step"].get<double>() -
                                         advice["fastest"]["seconds_per_step"].get<double>()))
                        .epsilon(0.01));
    CHECK(other["seconds_per_step"].get<double>() ==
          Catch::Approx(other["compute_seconds"].get<double>() +
                        other["exposed_communication_seconds"].get<double>()));
  }
}

TEST_CASE("if nothing fits, plan --advise says what the smallest settings need", "[zerolab]") {
  const auto advice = [](const std::string& ranks) {
    return Json::parse(
        plan("--model gpt2-xl --set train_micro_batch_size_per_gpu=1 --machine t4 --stages zero3 "
             "--device-memory 1.5GiB --advise --json --ranks " +
             ranks)
            .out)["advice"];
  };
  const Json few = advice("2");
  CHECK(few["fastest"].is_null());
  REQUIRE(few["others"].size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const Json& other = few["others"][i];
    CHECK(other["reason"] == "too little device memory");
    CHECK(other["peak_bytes"] >= few["others"][i / 2]["peak_bytes"]);
  }
  CHECK(advice("64")["fastest"]["fits"] == true);
}

TEST_CASE("Ctrl-C ends a long plan soon", "[zerolab]") {
  const Finished stopped = shell(
      "timeout --preserve-status -s INT 2 \"$ZEROLAB\" plan --precision bf16 --n-layer 30000");
  CHECK(stopped.code == 130);
  CHECK(stopped.seconds < 10);
  CHECK(stopped.err == "zerolab: interrupted\n");
}

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
  // The ZeRO paper's figure 1: 120, 31.4, 16.6 and 1.88 GB, there with 12 bytes of optimizer state.
  check_says(call("plan --parameters 7.5e9 --ranks 64 --precision bf16").out,
             {"1.875 GB", "7,500,000,000 parameters, ", "\n    optimizer, master weights "});
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
  const std::string plain = call("plan --model tiny --ranks 3").out;
  check_says(plain, {"a checkpoint on disk ", "406.50 KiB"});
  CHECK_FALSE(contains(plain, "host memory of a save"));
  check_says(call("plan --model tiny --ranks 3 --save-every 1").out,
             {"\n    host memory of a save (wait, still) ", "  host memory of a save (snapshot) "});

  const ScratchFolder folder;
  int64_t host = 0;
  const Json report = Json::parse(
      document(tiny_run(3, save + "snapshot --stage 3 --ranks 3 --out ") + (folder / "run")));
  for (const Json& row : report["memory"])
    if (row["pool"] == "host" && row["rank"] == 0) host += row["peak_bytes"].get<int64_t>();
  CHECK(host == 12 * 34752 / 3);
}

}  // namespace cli
