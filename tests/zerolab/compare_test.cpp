// compare and plan as a user meets them: documents, exit codes, files.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::set<std::string> keys(const Json& object) {
  std::set<std::string> all;
  for (const auto& [key, value] : object.items()) all.insert(key);
  return all;
}

const std::vector<std::string> kSmall = {"compare", "--model", "tiny",   "--steps", "2",
                                         "--ranks", "3",       "--json", "-q"};

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("compare --json is the document that the design defines", "[zerolab]") {
  const Finished finished = zerolab(kSmall);
  REQUIRE(finished.code == 0);
  CHECK(finished.err.empty());
  const Json json = Json::parse(finished.out);
  CHECK(keys(json) == std::set<std::string>{"schema", "command", "ok", "ranks", "parameters",
                                            "steps", "precision", "device", "backend",
                                            "bits_promised", "stages"});
  CHECK(json["ok"] == true);
  REQUIRE(json["stages"].size() == 4);
  for (const Json& stage : json["stages"]) {
    CHECK(keys(stage) == std::set<std::string>{
                             "stage", "loss", "grad_norm", "weights_hash", "bitwise_equal_to_ddp",
                             "max_abs_difference_to_ddp", "promised_equal_to", "bitwise_equal",
                             "memory", "peak_total_bytes", "predicted_peak_total_bytes",
                             "init_peak_total_bytes", "communication", "seconds_per_step"});
    CHECK(stage["loss"].size() == 2);
    CHECK(stage["weights_hash"].get<std::string>().size() == 16);
    CHECK(stage["weights_hash"] == json["stages"][0]["weights_hash"]);
    CHECK(stage["peak_total_bytes"] == stage["predicted_peak_total_bytes"]);
    for (const Json& row : stage["memory"]) {
      CHECK(row["rest_bytes"] == row["predicted_rest_bytes"]);
      CHECK(row["peak_bytes"] == row["predicted_peak_bytes"]);
    }
    for (const Json& row : stage["communication"])
      CHECK(row["sent_bytes_per_rank"] == row["predicted_sent_bytes_per_rank"]);
  }
}

TEST_CASE("compare ends with 3 if no listed stage fits, though ddp ran beside it", "[zerolab]") {
  const std::vector<std::string> one = {"compare", "--model",  "tiny",  "--steps", "1", "--ranks",
                                        "1",       "--stages", "zero3", "--json",  "-q"};
  const Json plan = Json::parse(
      zerolab({"plan", "--model", "tiny", "--ranks", "1", "--stages", "zero3", "--json"}).out);
  const int64_t peak = plan["stages"][0]["predicted_peak_total_bytes"][0];
  const Finished tight = zerolab(with(one, {"--device-memory", std::to_string(peak - 1)}));
  CHECK(tight.code == 3);
  CHECK(Json::parse(tight.out)["stages"][1]["out_of_memory"]["asked"] > 0);
  CHECK(zerolab(with(one, {"--device-memory", std::to_string(peak)})).code == 0);
}

TEST_CASE("compare --out leaves two whole files and nothing else, also when the disk is full",
          "[zerolab]") {
  const ScratchFolder folder;
  CHECK(zerolab(with(kSmall, {"--out", folder / "a"})).code == 0);
  CHECK(files_in(folder / "a") == std::vector<std::string>{"compare.json", "report.html"});
  CHECK(Json::parse(read_file(folder / "a/compare.json"))["command"] == "compare");
  CHECK(contains(read_file(folder / "a/report.html"), "<svg"));
  const Finished full = shell(
      "ulimit -f 1; $ZEROLAB compare --model tiny --steps 2 --ranks 1 -q --out " + (folder / "b"));
  CHECK(full.code == 2);
  CHECK(contains(full.err, "cannot be written"));
  CHECK(files_in(folder / "b").empty());
}

TEST_CASE("a stream that came closed does not become a file of the run", "[zerolab]") {
  const ScratchFolder folder;
  CHECK(
      shell("$ZEROLAB train --model tiny --steps 3 --sample 0 --out " + (folder / "run") + " 2>&-")
          .code == 0);
  for (const std::string& line : lines(read_file(folder / "run/metrics.jsonl")))
    CHECK_NOTHROW(Json::parse(line));
}

TEST_CASE("plan says what fits, in words and by its exit code, and refuses what it cannot count",
          "[zerolab]") {
  const Finished open = zerolab({"plan", "--model", "gpt2", "--ranks", "8"});
  CHECK(open.code == 0);
  CHECK(contains(open.out, "124,439,808 parameters"));
  CHECK(contains(open.out, "Nothing was judged to fit or not"));
  const Finished fits =
      zerolab({"plan", "--model", "gpt2", "--ranks", "8", "--device-memory", "5GiB"});
  CHECK(fits.code == 0);
  CHECK(contains(fits.out, "Take "));
  CHECK(zerolab({"plan", "--model", "gpt2", "--device-memory", "1MiB"}).code == 3);
  CHECK(zerolab({"plan", "--n-embd", "1e9", "--n-layer", "3", "--ranks", "1e6"}).code == 2);
  CHECK(zerolab({"plan", "--n-embd", "1e6", "--n-layer", "4", "--ranks", "1e6"}).code == 2);
  CHECK(contains(
      zerolab({"plan", "--parameters", "7.5e9", "--ranks", "64", "--precision", "bf16"}).out,
      "1.875 GB"));
}

}  // namespace cli
