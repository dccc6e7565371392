// bench step: rows relative to each other, independent ranks, rounds, the profile of kernels. Speed
// is not tested.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kStep = "bench step --model tiny -q ",
                  kTwo = kStep + "--ranks 2 --steps 3 --warm-up 1 ";

Json rows_of(const std::string& line) { return Json::parse(document(line))["results"]; }

// "STAGE RANKS" of each row.
Words names(const Json& rows) {
  Words all;
  for (const Json& row : rows)
    all.push_back(row["stage"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()));
  return all;
}

int64_t integer(const Json& value) { return value.get<int64_t>(); }

}  // namespace

TEST_CASE("bench step --json has rows for one rank and for each stage, relative to ddp",
          "[zerolab]") {
  const Json json = Json::parse(document(kTwo)), &rows = json["results"];
  CHECK((json["command"] == "bench step" && json["steps"] == 3));
  CHECK(names(rows) == words("'ddp 1' 'independent 2' 'ddp 2' 'zero1 2' 'zero2 2' 'zero3 2'"));
  for (const Json& row : rows) {
    CAPTURE(row.dump());
    const Json& seconds = row["seconds_per_step"];
    CHECK((seconds["min"] > 0.0 && seconds["min"] <= seconds["median"] &&
           seconds["median"] <= seconds["max"]));
    CHECK((row["tokens_per_second"] > 0.0 && row["share_of_peak"] > 0.0));
    CHECK(row["peak_total_bytes"].size() == row["ranks"]);
    if (!row["peak_resident_bytes"].is_null())
      CHECK(row["peak_resident_bytes"] >= row["resident_bytes_before"]);
  }
  CHECK(rows[0]["time_relative_to_ddp"].is_null());
  CHECK(rows[2]["time_relative_to_ddp"] == 1.0);
  // 6 operations per parameter and token, plus 14·B·L·C·T(T+1)/2 of attention per rank. tiny has 2
  // layers of width 32, T 32.
  const double tokens = 2 * 4 * 32, attention = 14.0 * 4 * 2 * 32 * (32 * 33 / 2);
  CHECK(rows[2]["operations_per_step"] ==
        6 * json["parameters"].get<double>() * tokens + 2 * attention);
  CHECK(rows[2]["operations_per_step"] == 2 * rows[0]["operations_per_step"].get<double>());
  CHECK(rows[0]["tokens_per_step"] == 4 * 32);
  // A block of width 32 has 12·32² weights of matrices and 13·32 other parameters.
  const Json deep = rows_of(kStep + "--ranks 1 --stages ddp --steps 1 --warm-up 0 --n-layer 4");
  CHECK(deep[0]["parameters"] == integer(rows[0]["parameters"]) + 2 * (12 * 32 * 32 + 13 * 32));
}

TEST_CASE(
    "activation checkpointing does not raise the share of the peak; a stage that does not fit is a "
    "row with the reason",
    "[zerolab]") {
  const std::string ddp = kTwo + "--stages ddp ";
  const Json plain = rows_of(ddp), again = rows_of(ddp + "--set zerolab.recompute=full"),
             smaller = rows_of(ddp + "--micro-batch 2");
  CHECK(plain.size() == 3);
  CHECK(plain[2]["operations_per_step"] == again[2]["operations_per_step"]);
  CHECK(plain[2]["peak_total_bytes"] != again[2]["peak_total_bytes"]);
  CHECK(plain[0]["operations_per_step"] != smaller[0]["operations_per_step"]);
  const Finished tight = call(kTwo + "--device-memory 300KiB");
  CHECK(tight.code == 3);
  check_says(tight.out, {"zero3 with 2 ranks: ", "parameter"});
}

TEST_CASE("independent ranks do the same work as ddp's ranks, without memory for communication",
          "[zerolab]") {
  const Json rows = rows_of(kStep + "--ranks 3 --stages zero1 --steps 4 --warm-up 1 --rounds 2");
  REQUIRE(rows.size() == 4);
  const Json &alone = rows[0], &apart = rows[1], &ddp = rows[2], &zero1 = rows[3];
  CHECK((apart["stage"] == "independent" && apart["ranks"] == 3));
  CHECK(apart["operations_per_step"] == ddp["operations_per_step"]);
  CHECK(apart["tokens_per_step"] == 3 * integer(alone["tokens_per_step"]));
  // Each has a full model and optimizer, to the byte; a rank of zero1 does not.
  const Json one = alone["peak_total_bytes"][0];
  CHECK(apart["peak_total_bytes"] == Json::array({one, one, one}));
  CHECK(zero1["peak_total_bytes"] != apart["peak_total_bytes"]);
  CHECK(alone["time_relative_to_independent"].is_null());
  CHECK(apart["time_relative_to_independent"] == 1.0);
  for (const Json& row : {ddp, zero1}) {
    const Json range = row["time_relative_to_independent_range"],
               time = row["time_relative_to_independent"];
    CHECK((range["min"] > 0.0 && range["min"] <= time && time <= range["max"]));
  }
  CHECK(contains(call(kStep + "--ranks 2 --steps 1").out, "\n  independent "));
  CHECK_FALSE(contains(call(kStep + "--ranks 1 --steps 1").out, "\n  independent "));
}

TEST_CASE("a ratio has one sample per round, and there are at most as many rounds as steps",
          "[zerolab]") {
  const std::string two = kStep + "--ranks 2 --stages ddp ";
  const Json one = Json::parse(document(two + "--steps 3 --rounds 1")),
             three = Json::parse(document(two + "--steps 5 --rounds 3"));
  CHECK((one["rounds"] == 1 && three["rounds"] == 3));
  const auto range = [](const Json& json) {
    return json["results"][2]["time_relative_to_independent_range"];
  };
  const auto median = [&](size_t row) {
    return one["results"][row]["seconds_per_step"]["median"].get<double>();
  };
  CHECK(range(one)["min"] == range(one)["max"]);
  CHECK(range(one)["min"] == median(2) / median(1));
  CHECK(range(three)["min"] != range(three)["max"]);
  CHECK(Json::parse(document(kStep + "--ranks 1 --stages ddp --steps 2 --rounds 9"))["rounds"] ==
        2);
}

TEST_CASE(
    "the profile has each kernel's calls and operations; the rest of a step is outside of kernels",
    "[zerolab]") {
  const auto profile = [](const std::string& layers) {
    return Json::parse(document(kStep + "--ranks 1 --stages ddp --steps 3 --profile --n-layer " +
                                layers))["profile"];
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
  const double least = json["share_outside_kernels"]["min"],
               most = json["share_outside_kernels"]["max"];
  CHECK((least > 0.0 && most < 1.0));
  // Kernels and the rest are of the same steps, so the shares add up to 1 if all steps are equal.
  CHECK((share + least <= 1.0 && share + most >= 1.0));
  check_says(call(kStep + "--ranks 1 --steps 1 --profile").out,
             {"of step", "GFLOP/s", "attention_backward", "\nshare outside kernels "});
  CHECK_FALSE(contains(call(kStep + "--ranks 1 --steps 1").out, "outside kernels"));
}

}  // namespace cli
