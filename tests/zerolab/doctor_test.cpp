// What the program says about the machine.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

// Text and document of one machine, without a launcher. These tests hide GPUs.
const Finished& text() {
  static const Finished finished = call("doctor");
  return finished;
}
const Json& json() {
  static const Json document = Json::parse(cli::document("doctor"));
  return document;
}

Finished doctor(const std::string& flags, const std::map<std::string, std::string>& environment) {
  return run({.arguments = words("doctor " + flags), .environment = environment});
}

}  // namespace

TEST_CASE("doctor names what is there, and a cure for what is not, with exit code 0", "[zerolab]") {
  CHECK((text().code == 0 && text().err.empty()));
  CHECK(text().seconds < 3);
  check_says(text().out,
             {"\nbuild ", "\ncpu ", "\nmemory ", "\nmeasured ", "matmul ", " GFLOP/s", " GB/s",
              "\ncuda ", "\nnccl ", "How to fix it: ", "shared memory ", "on several machines: "});
  for (const char* part : {"later version", "\nlaunch ", "build not compiled"})
    CHECK_FALSE(contains(text().out, part));
  CHECK((json()["ok"] == true && json()["cpu"]["cores"] >= 1));
  for (const char* rate : {"matmul_per_second", "copy_bytes_per_second"})
    CHECK(json()["measured"][rate] > 1e7);
}

TEST_CASE("doctor says of GPUs that none can be used and why, and how their part was compiled",
          "[zerolab]") {
  const Json& cuda = json()["cuda"];
  for (const std::string& key : words("built_in usable toolkit driver problem cure gpus"))
    CHECK(cuda.contains(key));
  CHECK(cuda["usable"] == false);
  CHECK(cuda["built_in"] == cuda["toolkit"].is_string());
  const auto line = starting(text().out, "cuda ");
  REQUIRE(line.size() == 1);
  check_says(line[0], {"cannot be used: " + cuda["problem"].get<std::string>() +
                       ". How to fix it: " + cuda["cure"].get<std::string>()});

  const std::string build = std::filesystem::path(ZEROLAB_BINARY).parent_path(),
                    key = "ZEROLAB_CUDA_SAYS:INTERNAL=";
  const auto cached = starting(read_file(build + "/CMakeCache.txt"), key);
  REQUIRE(cached.size() == 1);
  const std::string says = cached[0].substr(key.size());
  REQUIRE(!says.empty());
  const std::string left_out = "not compiled: ";
  CHECK(contains(line[0], says.starts_with(left_out)
                              ? ". Why it was left out: " + says.substr(left_out.size())
                              : "build " + says));
  CHECK(cuda["build"] == says);
}

TEST_CASE("doctor says whether NCCL is built in, and --version says the same", "[zerolab]") {
  const Json& nccl = json()["nccl"];
  CHECK(nccl["built_in"] == nccl["compiled_for"].is_string());
  CHECK(nccl["shared_memory_bytes"].is_number());
  CHECK(contains(call("--version").out,
                 nccl["built_in"] == true
                     ? ", NCCL " + nccl["compiled_for"].get<std::string>() + ")"
                     : ", no NCCL)"));
  check_says(text().out,
             {nccl["version"].is_string() ? ", version " + nccl["version"].get<std::string>()
                                          : "How to fix it: " + nccl["cure"].get<std::string>()});
}

TEST_CASE("the program starts without GPU libraries: it is linked to none", "[zerolab]") {
  const Finished listed =
      run({.arguments = {"--version"},
           .environment = {{"LD_TRACE_LOADED_OBJECTS", "1"}}});  // what ldd does
  CHECK(contains(listed.out, "libstdc++"));
  for (const char* name : {"cublas", "nccl", "libcuda"}) CHECK_FALSE(contains(listed.out, name));
}

TEST_CASE(
    "doctor tells the rank that a launcher gave this process, and what is wrong with the launch, "
    "with exit code 0",
    "[zerolab]") {
  const Finished rank = doctor("", {{"RANK", "1"},
                                    {"WORLD_SIZE", "2"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "gpu01"},
                                    {"MASTER_PORT", "29500"},
                                    {"TORCHELASTIC_RUN_ID", "a"}});
  CHECK(rank.code == 0);
  check_says(rank.out,
             {"\nlaunch    launcher torchrun, rank 1, ranks 2, local rank 1, local ranks 2, "
              "address gpu01, port 29501, run a\n"});
  const Finished broken = doctor("", {{"RANK", "1"}});
  CHECK(broken.code == 0);
  check_says(broken.out, {"\nlaunch    cannot be used: RANK=1, WORLD_SIZE=, LOCAL_RANK="});
  const Finished batch =
      doctor("--json", {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
  const Json launch = Json::parse(batch.out)["launch"];
  CHECK(launch["launcher"].is_null());
  CHECK(launch["note"].get<std::string>().starts_with(
      "Slurm allocation found but not started with srun"));
}

TEST_CASE("doctor lists each GPU that can be used with what it was measured to do", "[zerolab]") {
  const Finished finished = run({.arguments = words("doctor --json"), .gpus = true});
  REQUIRE(finished.code == 0);
  const Json cuda = Json::parse(finished.out)["cuda"];
  if (cuda["usable"] == false) SKIP(cuda["problem"].get<std::string>());
  CHECK(cuda["problem"].is_null());
  REQUIRE(cuda["gpus"].size() > 0);
  for (const Json& gpu : cuda["gpus"]) {
    if (!gpu["problem"].is_null()) continue;
    CHECK(gpu["total_bytes"] >= gpu["available_bytes"]);
    CHECK(gpu["measured"]["bf16_per_second"] > 1e11);
    CHECK(gpu["measured"]["copy_bytes_per_second"] > 1e10);
  }
}

}  // namespace cli
