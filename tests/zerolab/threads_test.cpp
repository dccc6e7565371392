// --threads: the same results, what reports say about it, and refusals.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
using Json = nlohmann::json;

TEST_CASE("compare --threads 3 has the results of one thread, and another seed has not",
          "[zerolab]") {
  const auto compare = [](const std::string& threads, const std::string& seed) {
    const Finished run =
        zerolab({"compare", "--model", "tiny", "--steps", "2", "--ranks", "2", "--stages", "zero3",
                 "--threads", threads, "--seed", seed, "--json", "-q"});
    REQUIRE(run.code == 0);
    return Json::parse(run.out);
  };
  const Json alone = compare("1", "1"), together = compare("3", "1"), other = compare("3", "2");
  CHECK(alone["threads"] == 1);
  CHECK(together["threads"] == 3);
  REQUIRE(alone["stages"].size() == together["stages"].size());
  for (size_t i = 0; i < alone["stages"].size(); ++i)
    for (const char* key : {"weights_hash", "loss", "grad_norm"}) {
      CAPTURE(i, key);
      CHECK(alone["stages"][i][key] == together["stages"][i][key]);
      CHECK(alone["stages"][i][key] != other["stages"][i][key]);
    }
}

TEST_CASE("train and the benchmarks name the threads of a rank", "[zerolab]") {
  const Finished train = zerolab(
      {"train", "--model", "tiny", "--steps", "1", "--ranks", "1", "--threads", "2", "--json"});
  CHECK(contains(train.err, "on 1 rank of 2 threads, "));
  CHECK(Json::parse(train.out)["threads"] == 2);
  const std::vector<std::string> kernels = {"bench", "kernels",   "--quick", "--only",
                                            "add",   "--threads", "2",       "-q"};
  CHECK(contains(zerolab(kernels).out, "one rank of 2 threads on "));
  const Finished step = zerolab({"bench", "step", "--model", "tiny", "--ranks", "1", "--steps", "1",
                                 "--rounds", "1", "--threads", "2", "-q"});
  CHECK(contains(step.out, " for 2 threads of a rank"));
}

TEST_CASE("plan --threads predicts the workspace of each thread", "[zerolab]") {
  const auto plan = [](const char* threads) {
    const Finished run = zerolab({"plan", "--model", "small", "--ranks", "2", "--stages", "zero1",
                                  "--threads", threads, "--json"});
    REQUIRE(run.code == 0);
    return Json::parse(run.out);
  };
  const auto peak = [](const Json& of) {
    return of["stages"][0]["predicted_peak_total_bytes"][0].get<int64_t>();
  };
  const Json alone = plan("1"), together = plan("3");
  CHECK(together["threads"] == 3);
  CHECK(peak(together) > peak(alone));
  const Finished gpu = zerolab({"plan", "--model", "small", "--as", "cuda", "--threads", "2"});
  CHECK(gpu.code == 2);
  CHECK(contains(gpu.err, "--threads splits kernels on the CPU"));
}

TEST_CASE("too many threads, and none, are refused", "[zerolab]") {
  for (const char* command : {"train", "compare"}) {
    CAPTURE(command);
    const Finished many = zerolab({command, "--threads", "100000"});
    CHECK(many.code == 2);
    CHECK(contains(many.err, "256"));
    CHECK(zerolab({command, "--threads", "0"}).code == 2);
  }
}

}  // namespace cli
