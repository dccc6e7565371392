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

}  // namespace cli
