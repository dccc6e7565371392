// bench kernels and comm: documents and tables. Speed is not tested.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kKernels = "bench kernels --model tiny --rows 64 ", kComm = "bench comm ";

}  // namespace

TEST_CASE("bench kernels --json has each kernel's time, operations and bytes in each precision",
          "[zerolab]") {
  const Finished finished = call(kKernels + "--samples 5 --precision fp32,bf16 --json -q");
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK((json["command"] == "bench kernels" && json["device"] == "cpu"));
  CHECK(json["copy_bytes_per_second"] > 1e7);
  std::map<std::string, std::set<std::string>> kernels;  // of each precision
  for (const Json& row : json["kernels"]) {
    CAPTURE(row.dump());
    kernels[row["precision"]].insert(row["kernel"]);
    const Json& seconds = row["seconds"];
    CHECK((seconds["min"] >= 0.0 && seconds["min"] <= seconds["median"] &&
           seconds["median"] <= seconds["max"]));
    CHECK((row["bytes"] >= 0 && row["share"] >= 0.0 && row["calls_per_step"] > 0.0));
    CHECK(json["operations_per_second"][row["precision"].get<std::string>()] > 1e7);
  }
  CHECK(kernels.size() == 2);
  for (const char* precision : {"fp32", "bf16"})
    for (const std::string& kernel :
         words("'matmul A·Bᵀ 64×256×32' sum_rows layer_norm_backward attention_backward gelu add "
               "cross_entropy embedding embedding_backward adamw sums_of_squares"))
      CHECK(kernels[precision].contains(kernel));
}

TEST_CASE("the operations and bytes of a matmul are those of its formula, and a table has limits",
          "[zerolab]") {
  // The MLP's first: one call in forward, of one block.
  const auto matmul = [](int rows) {
    const Json json =
        Json::parse(document("bench kernels --model tiny -q --rows " + std::to_string(rows)));
    const std::string name = "matmul A·B " + std::to_string(rows) + "×128×32";
    for (const Json& row : json["kernels"])
      if (row["kernel"] == name) return row;
    return Json();
  };
  const Json wide = matmul(96);
  CHECK(wide["calls_per_step"] == 1.0);
  CHECK(wide["operations"] == 2 * 96 * 32 * 128);
  CHECK(wide["bytes"] == 4 * (96 * 32 + 32 * 128 + 96 * 128));
  CHECK(matmul(64)["operations"] == 2 * 64 * 32 * 128);
  const Finished table = call(kKernels);
  CHECK(table.code == 0);
  check_says(table.out,
             {"\ncopy ", " GB/s\n", "\noperations ", "kernel", "median", "share", "add  "});
  CHECK(contains(table.err, "copy bandwidth"));
}

TEST_CASE("bench comm --json has a row for each collective and size, with the bandwidths of a ring",
          "[zerolab]") {
  // What the bandwidths are: tests/dist/trace.
  const Json json = Json::parse(
      document(kComm + "--ranks 3 --collective all_reduce,all_to_all -b 1K -e 16KiB -n 3 -w 1 -q"));
  CHECK((json["command"] == "bench comm" && json["ok"] == true && json["ranks"] == 3 &&
         json["backend"] == "threads" && json["ordered"] == true));
  REQUIRE(json["results"].size() == 3 * 2);  // 1, 4 and 16 KiB
  for (size_t i = 0; i < json["results"].size(); ++i) {
    const Json& row = json["results"][i];
    CAPTURE(row.dump());
    CHECK((row["collective"] == (i < 3 ? "all_reduce" : "all_to_all") && row["wrong"] == 0));
    CHECK(row["bytes"] == 4 * row["elements"].get<int64_t>());
    const int64_t elements = int64_t(256) << (2 * (i % 3));
    CHECK(row["elements"] == (i < 3 ? elements : elements / 3 * 3));
    const double rate = row["algorithm_bytes_per_second"], bus = row["bus_bytes_per_second"];
    CHECK(std::abs(bus / rate - (i < 3 ? 4.0 / 3 : 2.0 / 3)) < 1e-9);
  }
}

TEST_CASE("bench comm prints nccl-tests' output format", "[zerolab]") {
  const Finished finished = call(kComm + "--ranks 2 --dtype bf16 -b 1000 -f 1 -n 2 -w 0");
  CHECK(finished.code == 0);
  check_says(finished.out,
             {"#       size         count      type   redop     time   algbw   busbw #wrong\n"
              "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)\n"
              "all_reduce\n        1000           500  bfloat16     sum",
              "      0\n# average bus bandwidth"});
  CHECK(contains(finished.err, "1/1 all_reduce of 1000 B"));
}

}  // namespace cli
