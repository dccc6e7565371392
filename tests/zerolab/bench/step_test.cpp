// bench step: rows relative to each other, independent ranks, rounds, memory after warm-up, sweeps,
// the profile of kernels. Speed is not tested.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::vector<std::string> step(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", "step", "--model", "tiny", "-q"});
  return flags;
}

std::vector<std::string> two_ranks(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", "step", "--model", "tiny", "--ranks", "2", "--steps", "3",
                               "--warm-up", "1"});
  return flags;
}

void check_spread(const Json& seconds) {
  CHECK(seconds["min"] > 0.0);
  CHECK(seconds["min"] <= seconds["median"]);
  CHECK(seconds["median"] <= seconds["max"]);
}

Json measured(std::vector<std::string> flags) {
  flags.push_back("--json");
  const Finished finished = zerolab(step(flags));
  CAPTURE(flags, finished.err);
  REQUIRE(finished.code == 0);
  return Json::parse(finished.out);
}

std::vector<std::vector<std::string>> cells(const std::string& csv) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& line : lines(csv)) {
    all.emplace_back();
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) all.back().push_back(cell);
  }
  return all;
}

}  // namespace

TEST_CASE("bench step --json has rows for one rank and for each stage, relative to ddp",
          "[zerolab]") {
  const Finished finished = zerolab(two_ranks({"--json", "-q"}));
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
  // 6 operations per parameter and token, plus 14·B·L·C·T(T+1)/2 of attention per rank. tiny has 2
  // layers of width 32, T 32.
  const double tokens = 2 * 4 * 32, attention = 14.0 * 4 * 2 * 32 * (32 * 33 / 2);
  CHECK(json["results"][2]["operations_per_step"] ==
        6 * json["parameters"].get<double>() * tokens + 2 * attention);
  CHECK(json["results"][2]["operations_per_step"] ==
        2 * json["results"][0]["operations_per_step"].get<double>());
}

TEST_CASE(
    "activation checkpointing does not raise the share of the peak; a stage that does not fit is a "
    "row with the reason",
    "[zerolab]") {
  const auto results = [](const std::vector<std::string>& flags) {
    return Json::parse(zerolab(two_ranks(flags)).out)["results"];
  };
  const Json plain = results({"--json", "-q", "--stages", "ddp"});
  const Json again =
      results({"--json", "-q", "--stages", "ddp", "--set", "zerolab.recompute=full"});
  CHECK(plain.size() == 3);
  CHECK(plain[2]["operations_per_step"] == again[2]["operations_per_step"]);
  CHECK(plain[2]["peak_total_bytes"] != again[2]["peak_total_bytes"]);
  CHECK(
      plain[0]["operations_per_step"] !=
      results({"--json", "-q", "--stages", "ddp", "--micro-batch", "2"})[0]["operations_per_step"]);
  const Finished tight = zerolab(two_ranks({"--device-memory", "300KiB"}));
  CHECK(tight.code == 3);
  CHECK(contains(tight.out, "zero3 with 2 ranks: "));
  CHECK(contains(tight.out, "parameter"));
}

TEST_CASE("independent ranks do the same work as ddp's ranks, without memory for communication",
          "[zerolab]") {
  const Json rows = measured({"--ranks", "3", "--stages", "zero1", "--steps", "4", "--warm-up", "1",
                              "--rounds", "2"})["results"];
  REQUIRE(rows.size() == 4);
  const Json &alone = rows[0], &apart = rows[1], &ddp = rows[2], &zero1 = rows[3];
  CHECK(apart["stage"] == "independent");
  CHECK(apart["ranks"] == 3);
  CHECK(apart["operations_per_step"] == ddp["operations_per_step"]);
  CHECK(apart["tokens_per_step"] == 3 * alone["tokens_per_step"].get<int64_t>());
  // Each has a full model and optimizer, to the byte; a rank of zero1 does not.
  const Json one = alone["peak_total_bytes"][0];
  CHECK(apart["peak_total_bytes"] == Json::array({one, one, one}));
  CHECK(zero1["peak_total_bytes"] != apart["peak_total_bytes"]);
  CHECK(alone["time_relative_to_independent"].is_null());
  CHECK(apart["time_relative_to_independent"] == 1.0);
  for (const Json& row : {ddp, zero1}) {
    const Json range = row["time_relative_to_independent_range"];
    CHECK(range["min"] > 0.0);
    CHECK(range["min"] <= row["time_relative_to_independent"]);
    CHECK(row["time_relative_to_independent"] <= range["max"]);
  }
  CHECK(contains(zerolab(step({"--ranks", "2", "--steps", "1"})).out, "no communication"));
  CHECK_FALSE(contains(zerolab(step({"--ranks", "1", "--steps", "1"})).out, "no communication"));
}

TEST_CASE("a ratio has one sample per round, and there are at most as many rounds as steps",
          "[zerolab]") {
  const Json one = measured({"--ranks", "2", "--stages", "ddp", "--steps", "3", "--rounds", "1"});
  CHECK(one["rounds"] == 1);
  const Json range = one["results"][2]["time_relative_to_independent_range"];
  CHECK(range["min"] == range["max"]);
  CHECK(range["min"] == one["results"][2]["seconds_per_step"]["median"].get<double>() /
                            one["results"][1]["seconds_per_step"]["median"].get<double>());
  const Json three = measured({"--ranks", "2", "--stages", "ddp", "--steps", "5", "--rounds", "3"});
  CHECK(three["rounds"] == 3);
  CHECK(three["results"][2]["time_relative_to_independent_range"]["min"] !=
        three["results"][2]["time_relative_to_independent_range"]["max"]);
  CHECK(measured({"--ranks", "1", "--stages", "ddp", "--steps", "2", "--rounds", "9"})["rounds"] ==
        2);
}

TEST_CASE("a first step touches more new pages than a step after warm-up", "[zerolab]") {
#if defined(__SANITIZE_ADDRESS__)
  SKIP("under AddressSanitizer blocks are not pooled, so that a use after release is detected");
#endif
  const Json warm =
      measured({"--ranks", "2", "--steps", "4", "--warm-up", "2", "--rounds", "2"})["results"];
  for (const Json& row : warm) {
    CAPTURE(row.dump());
    CHECK(row["page_faults_per_step"] >= 0.0);
    if (!row["peak_resident_bytes"].is_null())
      CHECK(row["peak_resident_bytes"] >= row["resident_bytes_before"]);
  }
  const Json cold = measured({"--ranks", "2", "--steps", "1", "--warm-up", "0"})["results"];
  for (size_t i = 0; i < warm.size(); ++i)
    CHECK(cold[i]["page_faults_per_step"] > warm[i]["page_faults_per_step"]);
}

TEST_CASE("a sweep has rows for each value, in the table, in --json and in --csv", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = folder / "sizes.csv";
  const std::vector<std::string> flags = {
      "--ranks", "1",           "--stages", "ddp",           "--steps", "2",
      "--sweep", "n_layer=1,3", "--sweep",  "block-size=16", "--csv",   file};
  const Json rows = measured(flags)["results"];
  const auto csv = cells(read_file(file));
  REQUIRE(rows.size() == 3);
  REQUIRE(csv.size() == 4);
  REQUIRE(csv[0].size() == csv[1].size());
  CHECK(csv[0][0] == "setting");
  const auto column = [&](size_t row, const std::string& name) {
    for (size_t i = 0; i < csv[0].size(); ++i)
      if (csv[0][i] == name) return csv[row + 1].at(i);
    return std::string("no such column");
  };
  const std::vector<std::string> settings = {"n_layer", "n_layer", "block_size"},
                                 values = {"1", "3", "16"};
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i]["sweep"]["setting"] == settings[i]);
    CHECK(column(i, "setting") == settings[i]);
    CHECK(column(i, "value") == values[i]);
    CHECK(column(i, "parameters") == std::to_string(rows[i]["parameters"].get<int64_t>()));
    CHECK(column(i, "tokens") == std::to_string(rows[i]["tokens_per_step"].get<int64_t>()));
    CHECK(column(i, "peak_bytes") == std::to_string(rows[i]["peak_total_bytes"][0].get<int64_t>()));
  }
  // A block of width 32 has 12·32² weights of matrices and 13·32 other parameters. Shorter
  // sequences have fewer tokens.
  CHECK(rows[1]["parameters"] ==
        rows[0]["parameters"].get<int64_t>() + 2 * (12 * 32 * 32 + 13 * 32));
  CHECK(rows[0]["tokens_per_step"] == 4 * 32);
  CHECK(rows[2]["tokens_per_step"] == 4 * 16);
  const Finished again = zerolab(step(flags));
  CHECK(again.code == 2);
  CHECK(contains(again.err, "exists; --force replaces it"));
  std::vector<std::string> forced = flags;
  forced.push_back("--force");
  const Finished table = zerolab(step(forced));
  CHECK(table.code == 0);
  for (const char* part : {"n_layer=3", "block_size=16", "grows", "parameters"})
    CHECK(contains(table.out, part));
  CHECK_FALSE(contains(zerolab(step({"--ranks", "1", "--steps", "1"})).out, "grows"));
}

TEST_CASE("a sweep of ranks has rows for each number of ranks", "[zerolab]") {
  const Json rows =
      measured({"--stages", "ddp", "--steps", "2", "--sweep", "ranks=1,2"})["results"];
  std::string all;
  for (const Json& row : rows)
    all += std::to_string(row["sweep"]["value"].get<int>()) + ": " +
           row["stage"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + "; ";
  CHECK(all == "1: ddp 1; 2: ddp 1; 2: independent 2; 2: ddp 2; ");
}

TEST_CASE("an impossible sweep is refused before anything runs", "[zerolab]") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& part) {
    const Finished finished = zerolab(step(flags));
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  refused({"--sweep", "n_layr=1,2"},
          "'n_layr' cannot be swept; the settings are n_layer, n_head, ");
  refused({"--sweep", "n_layr=1,2"}, "did you mean 'n_layer'?");
  refused({"--sweep", "n_layer"}, "'n_layer' has no values; write n_layer=1,2,4");
  refused({"--sweep", "n_layer=1,,2"}, "--sweep: '' is not a count");
  refused({"--sweep", "n_layer=2,2"}, "'n_layer=2,2' has 2 twice");
  refused({"--sweep", "n_layer=1", "--sweep", "n-layer=2"},
          "--sweep n_layer is given twice; write all values in one");
  refused({"--sweep", "n_embd=64,33"}, "--sweep n_embd=33: ");
  refused({"--sweep", "ranks=1,65"}, "'65' is too large; it must be at most 64");
  refused({"--sweep", "n_layer=1", "--profile"}, "--profile measures one model; leave out --sweep");
  refused({"--force"}, "--force replaces the file of --csv, which is not given");
  refused({"--csv", "/"}, "is a folder");
}

TEST_CASE(
    "the profile has each kernel's calls and operations; the rest of a step is outside of kernels",
    "[zerolab]") {
  const auto profile = [](const std::string& layers) {
    return measured({"--ranks", "1", "--stages", "ddp", "--steps", "3", "--n-layer", layers,
                     "--profile"})["profile"];
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
  // Each with its sizes: the rows are B·T = 128 tokens.
  const auto calls = [&](const std::string& name) {
    for (const Json& kernel : json["kernels"])
      if (kernel["kernel"] == name) return kernel["calls_per_step"].get<double>();
    return 0.0;
  };
  CHECK(calls("matmul A·B 128×96×32") == 2);    // queries, keys and values
  CHECK(calls("matmul A·Bᵀ 128×256×32") == 1);  // the head
  CHECK(calls("matmul Aᵀ·B 32×128×128") == 2);  // the gradient of the MLP's first weight
  CHECK(json["untimed_calls"] == 0);
  double share = 0;
  for (const Json& kernel : json["kernels"]) {
    CHECK(kernel["seconds_per_step"] > 0.0);
    share += kernel["share_of_step"].get<double>();
  }
  const Json outside = json["share_outside_kernels"];
  CHECK(outside["min"] > 0.0);
  CHECK(outside["max"] < 1.0);
  // Kernels and the rest are of the same steps, so the shares add up to 1 if all steps are equal.
  CHECK(share + outside["min"].get<double>() <= 1.0);
  CHECK(share + outside["max"].get<double>() >= 1.0);
  CHECK(json["clock_seconds_per_step"] < json["seconds_per_step"]["median"]);
  const Finished table = zerolab(step({"--ranks", "1", "--steps", "1", "--profile"}));
  for (const char* part :
       {"of step", "µs each", "attention_backward", "outside of kernels", "reading the clock"})
    CHECK(contains(table.out, part));
  CHECK_FALSE(contains(zerolab(step({"--ranks", "1", "--steps", "1"})).out, "outside of kernels"));
}

}  // namespace cli
