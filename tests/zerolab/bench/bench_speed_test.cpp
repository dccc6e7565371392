// bench kernels and bench step: documents with positive numbers, refusals, Ctrl-C. How fast things
// are is no test.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

void check_spread(const Json& seconds) {
  CHECK(seconds["min"] > 0.0);
  CHECK(seconds["min"] <= seconds["median"]);
  CHECK(seconds["median"] <= seconds["max"]);
}

std::vector<std::string> step(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", "step", "--model", "tiny", "--ranks", "2", "--steps", "3",
                               "--warm-up", "1"});
  return flags;
}

}  // namespace

TEST_CASE("bench kernels --json tells each kernel's time, operations and bytes, in each precision",
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
    check_spread(row["seconds"]);
    CHECK(row["bytes"] > 0);
    CHECK(row["share"] > 0.0);
    CHECK(json["operations_per_second"][row["precision"].get<std::string>()] > 1e7);
  }
  CHECK(precisions == std::set<std::string>{"fp32", "fp16"});
  CHECK(kernels.size() * 2 == json["kernels"].size());
  for (const char* kernel : {"matmul, forward", "layer_norm_backward", "attention_backward", "gelu",
                             "add", "cross_entropy", "embedding", "adamw", "sum_of_squares"})
    CHECK(kernels.contains(kernel));
}

TEST_CASE("the operations and bytes of a product are those of its formula", "[zerolab]") {
  const auto matmul = [](const std::string& rows) {
    return Json::parse(zerolab({"bench", "kernels", "--quick", "--only", "matmul, forward",
                                "--rows", rows, "--json", "-q"})
                           .out)["kernels"]
        .at(0);
  };
  const Json product = matmul("96");
  CHECK(product["shape"] == "(96, 64)(64, 256)");
  CHECK(product["operations"] == 2 * 96 * 64 * 256);
  CHECK(product["bytes"] == 4 * (96 * 64 + 64 * 256 + 96 * 256));
  CHECK(product["operations"] != matmul("64")["operations"]);
}

TEST_CASE("bench kernels prints a table that names the limits, and refuses what it cannot measure",
          "[zerolab]") {
  const Finished table = zerolab({"bench", "kernels", "--quick", "--only", "add"});
  CHECK(table.code == 0);
  for (const char* part : {"at most: ", " GB/s by copying", "kernel", "median", "share", "add  "})
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
  refused({"--only", "matmull"}, "--only 'matmull' is part of no name among: matmul, forward; ");
  refused({"--rows", "1500"},
          "--rows 1500 is not a number of whole windows of 1024 tokens; try 1024");
  refused({"--precision", "fp32,fp8"}, "--precision: 'fp8' is none of fp32, bf16, fp16");
  refused({"--device", "cuda"}, "--device cuda: ");
  refused({"--steps", "3"}, "has no flag '--steps'");
}

TEST_CASE("bench step --json tells one rank and each stage, relative to ddp", "[zerolab]") {
  const Finished finished = zerolab(step({"--json", "-q"}));
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK(json["command"] == "bench step");
  CHECK(json["steps"] == 3);
  REQUIRE(json["results"].size() == 6);
  std::vector<std::string> rows;
  for (const Json& row : json["results"]) {
    CAPTURE(row.dump());
    rows.push_back(row["stage"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()));
    check_spread(row["seconds_per_step"]);
    CHECK(row["tokens_per_second"] > 0.0);
    CHECK(row["share_of_peak"] > 0.0);
    CHECK(row["peak_total_bytes"].size() == row["ranks"]);
  }
  CHECK(rows == std::vector<std::string>{"ddp 1", "independent 2", "ddp 2", "zero1 2", "zero2 2",
                                         "zero3 2"});
  CHECK(json["results"][0]["time_relative_to_ddp"].is_null());
  CHECK(json["results"][2]["time_relative_to_ddp"] == 1.0);
  // 6 operations per parameter and token; and attention's, 14·B·L·C·T(T+1)/2 of a rank: tiny has 2
  // layers of width 32, T 32.
  const double tokens = 2 * 4 * 32, attention = 14.0 * 4 * 2 * 32 * (32 * 33 / 2);
  CHECK(json["results"][2]["operations_per_step"] ==
        6 * json["parameters"].get<double>() * tokens + 2 * attention);
  CHECK(json["results"][2]["operations_per_step"] ==
        2 * json["results"][0]["operations_per_step"].get<double>());
}

TEST_CASE(
    "recomputed blocks do not count as more of the peak, and a stage that does not fit is a row "
    "that says so",
    "[zerolab]") {
  const auto results = [](const std::vector<std::string>& flags) {
    return Json::parse(zerolab(step(flags)).out)["results"];
  };
  const Json plain = results({"--json", "-q", "--stages", "ddp"});
  const Json again =
      results({"--json", "-q", "--stages", "ddp", "--set", "zerolab.recompute=true"});
  CHECK(plain.size() == 3);
  CHECK(plain[2]["operations_per_step"] == again[2]["operations_per_step"]);
  CHECK(plain[2]["peak_total_bytes"] != again[2]["peak_total_bytes"]);
  CHECK(
      plain[0]["operations_per_step"] !=
      results({"--json", "-q", "--stages", "ddp", "--micro-batch", "2"})[0]["operations_per_step"]);
  const Finished tight = zerolab(step({"--device-memory", "300KiB"}));
  CHECK(tight.code == 3);
  CHECK(contains(tight.out, "zero3 with 2 ranks: "));
  CHECK(contains(tight.out, "parameter"));
}

TEST_CASE("Ctrl-C ends a measurement with 130 and no table", "[zerolab]") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"bench", "kernels", "--samples", "1000"},
        {"bench", "machine", "--samples", "1000", "--array", "1MiB"},
        std::vector<std::string>{"bench", "step", "--model", "tiny", "--ranks", "2", "--steps",
                                 "100000"}}) {
    Launch launch{.arguments = arguments, .timeout = 30};
    launch.watch = [sent = false](pid_t process, const std::string& err) mutable {
      if (sent || err.empty()) return;
      sent = true;
      kill(process, SIGINT);
    };
    const Finished finished = run(launch);
    CHECK(finished.code == 130);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, "interrupted"));
  }
}

}  // namespace cli
