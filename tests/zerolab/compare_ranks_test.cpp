// compare --reproducible with several numbers of ranks, and compare with overlap on a slow link.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

std::vector<std::string> reproducible(const std::string& ranks,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"compare", "--reproducible", "--model", "tiny", "--steps",
                               "2",       "--ranks",        ranks,     "-q"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("compare --reproducible --ranks 1,2,3 prints one hash for all stages and ranks",
          "[zerolab]") {
  const Finished text = zerolab(reproducible("1,2,3"));
  REQUIRE(text.code == 0);
  CHECK(contains(text.out, "2 × 3 "));  // 6 micro-batches on 2 ranks
  CHECK(contains(text.out, "One hash: "));
  const Finished finished = zerolab(reproducible("3,2", {"--json", "--stages", "zero1,zero3"}));
  REQUIRE(finished.code == 0);
  const Json json = Json::parse(finished.out);
  std::set<std::string> hashes;
  for (const Json& run : json["runs"]) {
    CHECK(run["ranks"].get<int>() * run["gradient_accumulation_steps"].get<int>() == 6);
    CHECK(run["stages"].size() == 3);
    for (const Json& stage : run["stages"]) {
      hashes.insert(stage["hash"].get<std::string>());
      CHECK(stage["predictions_exact"] == true);
    }
  }
  CHECK(hashes == std::set<std::string>{json["hash"].get<std::string>()});
  CHECK(contains(text.out, json["hash"].get<std::string>()));
  const Finished other = zerolab(reproducible("2,3", {"--json", "--seed", "1"}));
  CHECK(Json::parse(other.out)["hash"] != json["hash"]);
}

TEST_CASE("train_batch_size decides how many micro-batches each number of ranks has", "[zerolab]") {
  const Finished finished =
      zerolab(reproducible("1,2", {"--json", "--stages", "zero2", "--set", "train_batch_size=16",
                                   "--set", "train_micro_batch_size_per_gpu=4"}));
  REQUIRE(finished.code == 0);
  const Json json = Json::parse(finished.out);
  CHECK(json["micro_batches_per_step"] == 4);
  CHECK(json["runs"][0]["gradient_accumulation_steps"] == 4);
  CHECK(json["runs"][1]["gradient_accumulation_steps"] == 2);
}

TEST_CASE("what several numbers of ranks cannot be combined with is a sentence", "[zerolab]") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& why) {
    const Finished finished = zerolab(arguments);
    CAPTURE(finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, why));
    CHECK(finished.out.empty());
  };
  refused({"compare", "--ranks", "1,2", "--model", "tiny"}, "add --reproducible");
  refused(reproducible("1,2", {"--out", "never"}), "--out takes the results of one number");
  refused(reproducible("61,59,53"), "at most 10000");
  refused(reproducible("1,x"), "--ranks");
  refused(reproducible("1,2", {"--set", "train_batch_size=6"}),
          "it is 6 on 1 rank and 3 on 2; set train_micro_batch_size_per_gpu");
  refused(reproducible("2,65"), "64");
  refused({"train", "--ranks", "1,2"}, "--ranks");
  refused(reproducible("2", {"--set", "communication_data_type=bf16"}), "fp32");
  refused(reproducible("2,3", {"--set", "zerolab.ordered=false"}), "ordered");
}

TEST_CASE("compare with overlap, prefetch and reuse on a slow link keeps bits and predictions",
          "[zerolab]") {
  const Finished finished =
      zerolab({"compare", "--model", "tiny", "--steps", "2", "--ranks", "2", "--json", "-q",
               "--set", "zero_optimization.overlap_comm=true", "--set",
               "zero_optimization.stage3_prefetch_bucket_size=1", "--set",
               "zero_optimization.stage3_max_reuse_distance=1", "--link-latency", "300us"});
  REQUIRE(finished.code == 0);
  const Json json = Json::parse(finished.out);
  CHECK(json["ok"] == true);
  double hidden = 0;  // a busy machine may start a lane late, but not all of them every time
  for (const Json& stage : json["stages"])
    for (const Json& rank : stage["communication_time"]) {
      hidden += rank["hidden_seconds"].get<double>();
      CHECK(rank["exposed_seconds"].get<double>() > 0);  // root's reduction, at least
    }
  CHECK(hidden > 0);
}

TEST_CASE("compare shows what each rank did in the last step, where calls can be in flight",
          "[zerolab]") {
  const std::vector<std::string> plain{"compare", "--model", "small",    "--steps", "2",
                                       "--ranks", "2",       "--stages", "zero2",   "-q"};
  std::vector<std::string> overlapped = plain;
  for (const char* word : {"--set", "zero_optimization.overlap_comm=true", "--link-latency", "3ms"})
    overlapped.push_back(word);
  const Finished finished = zerolab(overlapped);
  REQUIRE(finished.code == 0);
  for (const char* part : {"zero2, the last step, ", "  rank 0  ", "  rank 1  ", "hidden behind"})
    CHECK(contains(finished.out, part));
  int waits = 0, overlaps = 0;
  for (const std::string& line : lines(finished.out))
    if (line.starts_with("  rank 0  ")) {
      waits += contains(line, "....");
      overlaps += contains(line, "=");
    }
  CHECK(waits > 0);  // 3 ms for each call: the last one has nothing to hide behind
  CHECK(overlaps > 0);
  CHECK_FALSE(contains(zerolab(plain).out, "the last step, "));
}

}  // namespace cli
