// What the program says about the machine.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {

TEST_CASE("doctor names what is there, and a cure for what is not, with exit code 0", "[zerolab]") {
  const Finished finished = zerolab({"doctor"});
  CHECK(finished.code == 0);
  CHECK(finished.err.empty());
  for (const char* part : {"\nbuild ", "\nkernels ", "\nCPU ", "\nmemory ", "\nmatmul ", "\ncopy ",
                           "\nCUDA ", "\nNCCL ", "How to fix it: "})
    CHECK(contains(finished.out, part));
  CHECK(finished.seconds < 3);
}

TEST_CASE("doctor --json is one document with measured numbers", "[zerolab]") {
  const Finished finished = zerolab({"doctor", "--json"});
  REQUIRE(finished.code == 0);
  const auto document = nlohmann::json::parse(finished.out);
  CHECK(document["ok"] == true);
  CHECK(document["cpu"]["cores"] >= 1);
  CHECK(document["measured"]["matmul_per_second"] > 1e7);
  CHECK(document["measured"]["copy_bytes_per_second"] > 1e7);
}

TEST_CASE(
    "doctor says of GPUs that none can be used and why, in words and in JSON, and points to no "
    "later version for them",
    "[zerolab]") {
  const auto cuda =
      nlohmann::json::parse(zerolab({"doctor", "--json"}).out)["cuda"];  // these tests hide GPUs
  for (const char* key : {"built_in", "usable", "toolkit", "driver", "problem", "cure", "gpus"})
    CHECK(cuda.contains(key));
  CHECK(cuda["usable"] == false);
  CHECK(cuda["built_in"] == cuda["toolkit"].is_string());
  for (const std::string& line : lines(zerolab({"doctor"}).out)) {
    if (!line.starts_with("CUDA ")) continue;
    CAPTURE(line);
    CHECK(contains(line,
                   "ranks compute on the CPU. How to fix it: " + cuda["cure"].get<std::string>()));
    CHECK_FALSE(contains(line, "later version"));
  }
}

TEST_CASE("doctor repeats how the part for GPUs was compiled, or why it was not", "[zerolab]") {
  const std::string build = std::filesystem::path(ZEROLAB_BINARY).parent_path();
  const std::string key = "ZEROLAB_CUDA_SAYS:INTERNAL=";
  std::string says;
  for (const std::string& line : lines(read_file(build + "/CMakeCache.txt")))
    if (line.starts_with(key)) says = line.substr(key.size());
  REQUIRE(!says.empty());
  CHECK(contains(zerolab({"doctor"}).out, "\n              " + says + "\n"));
  CHECK(nlohmann::json::parse(zerolab({"doctor", "--json"}).out)["cuda"]["build"] == says);
}

TEST_CASE(
    "doctor says whether NCCL is built in, which, and what several ranks need, and --version says "
    "the same",
    "[zerolab]") {
  const auto nccl = nlohmann::json::parse(zerolab({"doctor", "--json"}).out)["nccl"];
  const std::string text = zerolab({"doctor"}).out, version = zerolab({"--version"}).out;
  for (const char* part :
       {"\n/dev/shm ", "\nlauncher      none: this process runs all ranks\n", "\nmachines "})
    CHECK(contains(text, part));
  CHECK_FALSE(contains(text, "later version"));
  CHECK(nccl["built_in"] == nccl["compiled_for"].is_string());
  CHECK(nccl["shared_memory_bytes"].is_number());
  CHECK(contains(version, nccl["built_in"] == true
                              ? ", NCCL " + nccl["compiled_for"].get<std::string>() + ")"
                              : ", no NCCL)"));
  if (nccl["version"].is_string())
    CHECK(contains(text, "\nNCCL          " + nccl["version"].get<std::string>() +
                             ", one rank per GPU: none can be used here\n"));
  else
    CHECK(contains(text, "How to fix it: " + nccl["cure"].get<std::string>()));
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
  const Finished rank = run({.arguments = {"doctor"},
                             .environment = {{"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_RANK", "1"},
                                             {"LOCAL_WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "gpu01"},
                                             {"MASTER_PORT", "29500"},
                                             {"TORCHELASTIC_RUN_ID", "a"}}});
  CHECK(rank.code == 0);
  CHECK(contains(rank.out,
                 "\nlauncher      torchrun: this is rank 1 of 2, 1 of 2 on this machine; rank 0 is "
                 "at gpu01, port 29501\n"));
  const Finished broken = run({.arguments = {"doctor"}, .environment = {{"RANK", "1"}}});
  CHECK(broken.code == 0);
  CHECK(contains(broken.out,
                 "\nlauncher      not understood: RANK is '1', but WORLD_SIZE is not set"));
  const auto batch =
      run({.arguments = {"doctor", "--json"},
           .environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}});
  const auto launch = nlohmann::json::parse(batch.out)["launch"];
  CHECK(launch["launcher"].is_null());
  CHECK(launch["note"].get<std::string>().starts_with(
      "Slurm allocation found but not started with srun"));
}

TEST_CASE("doctor lists each GPU that can be used with what it was measured to do", "[zerolab]") {
  const Finished finished = run({.arguments = {"doctor", "--json"}, .gpus = true});
  REQUIRE(finished.code == 0);
  const auto cuda = nlohmann::json::parse(finished.out)["cuda"];
  if (cuda["usable"] == false) SKIP(cuda["problem"].get<std::string>());
  CHECK(cuda["problem"].is_null());
  REQUIRE(cuda["gpus"].size() > 0);
  for (const auto& gpu : cuda["gpus"]) {
    if (!gpu["problem"].is_null()) continue;
    CHECK(gpu["total_bytes"] >= gpu["available_bytes"]);
    CHECK(gpu["measured"]["bf16_per_second"] > 1e11);
    CHECK(gpu["measured"]["copy_bytes_per_second"] > 1e10);
  }
}

}  // namespace cli
