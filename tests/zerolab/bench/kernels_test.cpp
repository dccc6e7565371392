// bench kernels: the JSON document, the table, refusals. Speed is not tested.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "nn/data/corpus.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

}  // namespace

TEST_CASE("bench kernels --json has each kernel's time, operations and bytes in each precision",
          "[zerolab]") {
  const Finished finished = zerolab({"bench", "kernels", "--quick", "--samples", "5", "--precision",
                                     "fp32,fp16", "--json", "-q"});
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK(json["command"] == "bench kernels");
  CHECK(json["device"] == "cpu");
  CHECK(json["copy_bytes_per_second"] > 1e7);
  std::set<std::string> kernels, precisions;
  for (const Json& row : json["kernels"]) {
    CAPTURE(row.dump());
    kernels.insert(row["kernel"]);
    precisions.insert(row["precision"]);
    CHECK(row["seconds"]["min"] > 0.0);
    CHECK(row["seconds"]["min"] <= row["seconds"]["median"]);
    CHECK(row["seconds"]["median"] <= row["seconds"]["max"]);
    CHECK(row["bytes"] > 0);
    CHECK(row["share"] > 0.0);
    CHECK(json["operations_per_second"][row["precision"].get<std::string>()] > 1e7);
  }
  CHECK(precisions == std::set<std::string>{"fp32", "fp16"});
  CHECK(kernels.size() * 2 == json["kernels"].size());
  for (const char* kernel :
       {"matmul, MLP up forward", "matmul with bias, MLP up", "sum_rows",
        "matmul, head, weight gradient", "layer_norm_backward", "attention_backward", "gelu", "add",
        "cross_entropy", "embedding", "adamw", "sum_of_squares"})
    CHECK(kernels.contains(kernel));
}

TEST_CASE(
    "one row of bench kernels has real text, and says how frequent its most frequent token is",
    "[zerolab]") {
  const Json json = Json::parse(
      zerolab({"bench", "kernels", "--quick", "--only", "embedding_backward", "--json", "-q"}).out);
  REQUIRE(json["kernels"].size() == 2);
  const Json &spread = json["kernels"][0], &text = json["kernels"][1];
  CHECK(spread["shape"] == "(64, 64)");
  const std::string_view tokens = zl::default_corpus().substr(0, 64);  // the program's are bytes
  const auto spaces = double(std::ranges::count(tokens, ' '));
  CHECK(spaces > 0.1 * 64);
  CHECK(text["kernel"] == "embedding_backward, text");
  CHECK(text["shape"] ==
        "(64, 64), " + std::to_string(std::lround(100 * spaces / 64)) + " % one token");
  CHECK(text["bytes"] == spread["bytes"]);
}

TEST_CASE("the operations and bytes of a matmul are those of its formula", "[zerolab]") {
  const auto matmul = [](const std::string& rows) {
    return Json::parse(zerolab({"bench", "kernels", "--quick", "--only", "MLP up forward", "--rows",
                                rows, "--json", "-q"})
                           .out)["kernels"]
        .at(0);
  };
  const Json wide = matmul("96");
  CHECK(wide["shape"] == "(96, 64)(64, 256)");
  CHECK(wide["operations"] == 2 * 96 * 64 * 256);
  CHECK(wide["bytes"] == 4 * (96 * 64 + 64 * 256 + 96 * 256));
  CHECK(wide["operations"] != matmul("64")["operations"]);
}

TEST_CASE("bench kernels prints a table with the limits, and refuses unknown kernels and sizes",
          "[zerolab]") {
  const Finished table = zerolab({"bench", "kernels", "--quick", "--only", "add"});
  CHECK(table.code == 0);
  for (const char* part : {"limits: ", " GB/s (copy)", "kernel", "median", "share", "add  "})
    CHECK(contains(table.out, part));
  CHECK_FALSE(contains(table.out, "adamw"));
  CHECK(contains(table.err, "copy bandwidth"));
  const auto refused = [](const std::vector<std::string>& flags, const std::string& part) {
    std::vector<std::string> arguments = {"bench", "kernels"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Finished finished = zerolab(arguments);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  refused({"--only", "matmull"},
          "--only 'matmull' is part of no name among: matmul, qkv forward; ");
  refused({"--rows", "1500"},
          "--rows 1500 is not a multiple of the sequence length, 1024 tokens; try 1024");
  refused({"--model", "gpt5"}, "there is no model 'gpt5'; known are tiny, small, gpt2");
  refused({"--precision", "fp32,fp8"}, "--precision: 'fp8' is none of fp32, bf16, fp16");
  refused({"--device", "cuda"}, "--device cuda: ");
  refused({"--steps", "3"}, "has no flag '--steps'");
}

}  // namespace cli
