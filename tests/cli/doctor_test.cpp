// What the program says about the machine.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace cli {

TEST_CASE("doctor names what is there, and a cure for what is not, with exit code 0", "[cli]") {
  const Finished finished = zerolab({"doctor"});
  CHECK(finished.code == 0);
  CHECK(finished.err.empty());
  for (const char* part : {"\nbuild ", "\nkernels ", "\nCPU ", "\nmemory ", "\nmatmul ", "\ncopy ", "\nCUDA ", "\nNCCL ", "Cure: "}) CHECK(contains(finished.out, part));
  CHECK(finished.seconds < 3);
}

TEST_CASE("doctor --json is one document with measured numbers", "[cli]") {
  const Finished finished = zerolab({"doctor", "--json"});
  REQUIRE(finished.code == 0);
  const auto document = nlohmann::json::parse(finished.out);
  CHECK(document["ok"] == true);
  CHECK(document["cpu"]["cores"] >= 1);
  CHECK(document["measured"]["matmul_per_second"] > 1e7);
  CHECK(document["measured"]["copy_bytes_per_second"] > 1e7);
}

TEST_CASE("doctor says of GPUs that none can be used and why, in words and in JSON, and points to no later version for them", "[cli]") {
  const auto cuda = nlohmann::json::parse(zerolab({"doctor", "--json"}).out)["cuda"];  // these tests hide GPUs
  for (const char* key : {"built_in", "usable", "toolkit", "driver", "problem", "cure", "gpus"}) CHECK(cuda.contains(key));
  CHECK(cuda["usable"] == false);
  CHECK(cuda["built_in"] == cuda["toolkit"].is_string());
  for (const std::string& line : lines(zerolab({"doctor"}).out)) {
    if (!line.starts_with("CUDA ")) continue;
    CAPTURE(line);
    CHECK(contains(line, "ranks compute on the CPU. Cure: " + cuda["cure"].get<std::string>()));
    CHECK_FALSE(contains(line, "later version"));
  }
}

TEST_CASE("doctor lists each GPU that can be used with what it was measured to do", "[cli]") {
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
