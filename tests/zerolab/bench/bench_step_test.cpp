// bench step's rows beside each other: independent ranks, rounds, steady memory, sweeps, the
// profile by kernel.

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

TEST_CASE(
    "independent ranks do the work of ddp's without its memory for communication, and are what ddp "
    "is compared with",
    "[zerolab]") {
  const Json rows = measured({"--ranks", "3", "--stages", "zero1", "--steps", "4", "--warm-up", "1",
                              "--rounds", "2"})["results"];
  REQUIRE(rows.size() == 4);
  const Json &alone = rows[0], &apart = rows[1], &ddp = rows[2], &zero1 = rows[3];
  CHECK(apart["stage"] == "independent");
  CHECK(apart["ranks"] == 3);
  CHECK(apart["operations_per_step"] == ddp["operations_per_step"]);
  CHECK(apart["tokens_per_step"] == 3 * alone["tokens_per_step"].get<int64_t>());
  // Each has a whole model and optimizer of its own, to the byte; a rank of zero1 has not.
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

TEST_CASE("a ratio has as many samples as there are rounds, and no more rounds than steps",
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

TEST_CASE("a warm step takes no block from the system, and a first one does", "[zerolab]") {
#if defined(__SANITIZE_ADDRESS__)
  SKIP("under AddressSanitizer no block is kept, so that a use after release is seen");
#endif
  const Json warm =
      measured({"--ranks", "2", "--steps", "4", "--warm-up", "2", "--rounds", "2"})["results"];
  for (const Json& row : warm) {
    CAPTURE(row.dump());
    CHECK(row["system_allocations_per_step"] == 0.0);
    CHECK(row["page_faults_per_step"] >= 0.0);
    if (!row["peak_resident_bytes"].is_null())
      CHECK(row["peak_resident_bytes"] >= row["resident_bytes_before"]);
  }
  const Json cold = measured({"--ranks", "2", "--steps", "1", "--warm-up", "0"})["results"];
  for (size_t i = 0; i < warm.size(); ++i) {
    CHECK(cold[i]["system_allocations_per_step"] > 0.0);
    CHECK(cold[i]["page_faults_per_step"] > warm[i]["page_faults_per_step"]);
  }
}

TEST_CASE("sweeps give a row for each value and kind, in the table, in --json and in --csv",
          "[zerolab]") {
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
  // Two more blocks of width 32 have 12·32² weights and 13·32 biases and weights each; shorter
  // windows have fewer positions.
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

TEST_CASE("a sweep of ranks has each number's own rows", "[zerolab]") {
  const Json rows =
      measured({"--stages", "ddp", "--steps", "2", "--sweep", "ranks=1,2"})["results"];
  std::string all;
  for (const Json& row : rows)
    all += std::to_string(row["sweep"]["value"].get<int>()) + ": " +
           row["stage"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + "; ";
  CHECK(all == "1: ddp 1; 2: ddp 1; 2: independent 2; 2: ddp 2; ");
}

TEST_CASE("a sweep that cannot be measured is refused before anything runs", "[zerolab]") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& part) {
    const Finished finished = zerolab(step(flags));
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, part));
  };
  refused({"--sweep", "n_layr=1,2"},
          "'n_layr' is no setting to sweep; there are n_layer, n_head, ");
  refused({"--sweep", "n_layr=1,2"}, "did you mean 'n_layer'?");
  refused({"--sweep", "n_layer"}, "'n_layer' has no values; write n_layer=1,2,4");
  refused({"--sweep", "n_layer=1,,2"}, "--sweep: '' is not a count");
  refused({"--sweep", "n_layer=2,2"}, "'n_layer=2,2' has 2 twice");
  refused({"--sweep", "n_layer=1", "--sweep", "n-layer=2"},
          "--sweep n_layer is given twice; write all values in one");
  refused({"--sweep", "n_embd=64,33"}, "--sweep n_embd=33: ");
  refused({"--sweep", "ranks=1,65"}, "'65' is too large; it must be at most 64");
  refused({"--sweep", "n_layer=1", "--profile"}, "--profile is of one model; leave out --sweep");
  refused({"--force"}, "--force replaces the file of --csv, which is not given");
  refused({"--csv", "/"}, "is a folder");
}

TEST_CASE(
    "the profile has each kernel's calls and operations, and what is left of the step is outside "
    "of them",
    "[zerolab]") {
  const auto profile = [](const std::string& layers) {
    return measured({"--ranks", "1", "--stages", "ddp", "--steps", "3", "--n-layer", layers,
                     "--profile"})["profile"];
  };
  const auto products = [](const Json& profile, const char* number) {
    double all = 0;
    for (const Json& kernel : profile["kernels"])
      if (kernel["kernel"].get<std::string>().starts_with("matmul"))
        all += kernel[number].get<double>();
    return all;
  };
  // Four products of each block and the head's, each forward, to its input and to its weight, at 2
  // operations for each weight and token: tiny has 2 layers, width 32, T 32, V 256.
  const Json json = profile("2"), one = profile("1");
  CHECK(products(json, "calls_per_step") == 3 * (4 * 2 + 1));
  CHECK(products(json, "operations_per_step") ==
        3.0 * 2 * (4 * 32) * (2 * 12 * 32 * 32 + 256 * 32));
  CHECK(products(one, "calls_per_step") == 3 * (4 * 1 + 1));
  CHECK(products(one, "operations_per_step") != products(json, "operations_per_step"));
  CHECK(json["untimed_calls"] == 0);
  double share = 0;
  for (const Json& kernel : json["kernels"]) {
    CHECK(kernel["seconds_per_step"] > 0.0);
    share += kernel["share_of_step"].get<double>();
  }
  const Json outside = json["share_outside_kernels"];
  CHECK(outside["min"] > 0.0);
  CHECK(outside["max"] < 1.0);
  // Both are of the same steps: where all of them take as long, the shares add up to 1.
  CHECK(share + outside["min"].get<double>() <= 1.0);
  CHECK(share + outside["max"].get<double>() >= 1.0);
  CHECK(json["clock_seconds_per_step"] < json["seconds_per_step"]["median"]);
  const Finished table = zerolab(step({"--ranks", "1", "--steps", "1", "--profile"}));
  for (const char* part :
       {"of step", "attention_backward", "outside of kernels", "reading the clock"})
    CHECK(contains(table.out, part));
  CHECK_FALSE(contains(zerolab(step({"--ranks", "1", "--steps", "1"})).out, "outside of kernels"));
}

}  // namespace cli
