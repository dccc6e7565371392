// bench kernels and comm: documents and tables. Speed is not tested.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kKernels = "bench kernels --model tiny ", kComm = "bench comm ";

}  // namespace

TEST_CASE("bench kernels --json has each kernel's time, operations and bytes in its precision",
          "[zerolab]") {
  for (const std::string precision : {"fp32", "bf16"}) {
    const Finished finished =
        call(kKernels + "--rows 64 --samples 5 --json -q --precision " + precision);
    REQUIRE(finished.code == 0);
    CHECK(finished.err.empty());
    const Json json = Json::parse(finished.out);
    CHECK((json["command"] == "bench kernels" && json["device"] == "cpu"));
    CHECK(json["copy_bytes_per_second"] > 1e7);
    CHECK(json["operations_per_second"][precision] > 1e7);
    std::set<std::string> kernels;
    for (const Json& row : json["kernels"]) {
      CAPTURE(row.dump());
      kernels.insert(row["kernel"]);
      const Json& seconds = row["seconds"];
      CHECK((seconds["min"] >= 0.0 && seconds["min"] <= seconds["median"] &&
             seconds["median"] <= seconds["max"]));
      CHECK((row["bytes"] >= 0 && row["share"] >= 0.0 && row["calls_per_step"] > 0.0));
      CHECK(row["precision"] == precision);
    }
    for (const std::string& kernel :
         words("'matmul A·Bᵀ 64×256×32' sum_rows layer_norm_backward attention_backward gelu add "
               "cross_entropy embedding embedding_backward adamw sums_of_squares"))
      CHECK(kernels.contains(kernel));
  }
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

TEST_CASE(
    "with all layers the calls and operations are those of a step; the rest is outside of kernels",
    "[zerolab]") {
  const auto profile = [](const std::string& layers) {
    return Json::parse(document(kKernels + "--rows 128 --samples 3 -q --n-layer " + layers));
  };
  const auto matmuls = [](const Json& profile, const char* number) {
    double all = 0;
    for (const Json& kernel : profile["kernels"])
      if (kernel["kernel"].get<std::string>().starts_with("matmul"))
        all += kernel[number].get<double>();
    return all;
  };
  // Four matmuls of each block and the head's, each in forward, for the gradient of the input and
  // for that of the weight, at 2 operations per weight and token. tiny: 2 layers, width 32, T 32, V
  // 256.
  const Json json = profile("2"), one = profile("1");
  CHECK(matmuls(json, "calls_per_step") == 3 * (4 * 2 + 1));
  CHECK(matmuls(json, "operations_per_step") == 3.0 * 2 * (4 * 32) * (2 * 12 * 32 * 32 + 256 * 32));
  CHECK(matmuls(one, "calls_per_step") == 3 * (4 * 1 + 1));
  CHECK(matmuls(one, "operations_per_step") != matmuls(json, "operations_per_step"));
  std::map<std::string, double> calls;
  double share = 0;
  for (const Json& kernel : json["kernels"]) {
    CHECK(kernel["seconds_per_step"] > 0.0);
    CHECK((kernel["bound"] == "copy" || kernel["bound"] == "operations"));
    share += kernel["share_of_step"].get<double>();
    calls[kernel["kernel"]] += kernel["calls_per_step"].get<double>();
  }
  // Each with its sizes: the rows are B·T = 128 tokens.
  CHECK(calls["matmul A·B 128×96×32"] == 2);    // queries, keys and values
  CHECK(calls["matmul A·Bᵀ 128×256×32"] == 1);  // the head
  CHECK(calls["matmul Aᵀ·B 32×128×128"] == 2);  // the gradient of the MLP's first weight
  const double outside = json["share_outside_kernels"]["fp32"];
  CHECK((outside > 0.0 && outside < 1.0));
  CHECK(std::abs(share + outside - 1) < 1e-9);
  check_says(call(kKernels).out,
             {"of step", "GFLOP/s", "attention_backward", "\nshare outside kernels "});
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

TEST_CASE("bench comm prints nccl-tests' columns", "[zerolab]") {
  const Finished finished = call(
      kComm + "--ranks 2 --collective all_reduce,broadcast --dtype bf16 -b 1000 -f 1 -n 2 -w 0");
  CHECK(finished.code == 0);
  for (const char* row :
       {"\n +collective +size +count +type +redop +time +algbw +busbw +#wrong\n",
        "\n +all_reduce +1000 +500 +bfloat16 +sum +[0-9.]+ (µ|m)s +[0-9]+\\.[0-9]{2} "
        "+[0-9]+\\.[0-9]{2} +0\n",
        "\n +broadcast +1000 +500 +bfloat16 +none ", "\naverage bus +[0-9.]+ GB/s\n"}) {
    CAPTURE(finished.out, row);
    CHECK(std::regex_search(finished.out, std::regex(row)));
  }
  CHECK(contains(finished.err, "1/2 all_reduce of 1000 B"));
}

}  // namespace cli
