// --threads: the same results, what reports say about it, and refusals.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

void skip_on_one_core() {
  if (std::thread::hardware_concurrency() < 2) SKIP("this machine has one core");
}

}  // namespace

TEST_CASE("compare --threads 2 has the results of one thread, and another seed has not",
          "[zerolab]") {
  skip_on_one_core();
  const auto compare = [](const std::string& threads, const std::string& seed) {
    const Finished run =
        zerolab({"compare", "--model", "tiny", "--steps", "2", "--ranks", "2", "--stages", "zero3",
                 "--threads", threads, "--seed", seed, "--json", "-q"});
    REQUIRE(run.code == 0);
    return Json::parse(run.out);
  };
  const Json alone = compare("1", "1"), together = compare("2", "1"), other = compare("2", "2");
  CHECK(alone["threads"] == 1);
  CHECK(together["threads"] == 2);
  REQUIRE(alone["stages"].size() == together["stages"].size());
  for (size_t i = 0; i < alone["stages"].size(); ++i)
    for (const char* key : {"weights_hash", "loss", "grad_norm"}) {
      CAPTURE(i, key);
      CHECK(alone["stages"][i][key] == together["stages"][i][key]);
      CHECK(alone["stages"][i][key] != other["stages"][i][key]);
    }
}

TEST_CASE("train and the benchmarks name the threads of a rank", "[zerolab]") {
  skip_on_one_core();
  const Finished train = zerolab(
      {"train", "--model", "tiny", "--steps", "1", "--ranks", "1", "--threads", "2", "--json"});
  CHECK(contains(train.err, "on 1 rank of 2 threads, "));
  CHECK(Json::parse(train.out)["threads"] == 2);
  const std::vector<std::string> kernels = {"bench", "kernels",   "--quick", "--only",
                                            "add",   "--threads", "2",       "-q"};
  CHECK(contains(zerolab(kernels).out, "one rank of 2 threads on "));
  const Finished step = zerolab({"bench", "step", "--model", "tiny", "--ranks", "1", "--steps", "1",
                                 "--rounds", "1", "--threads", "2", "-q"});
  CHECK(contains(step.out, " GFLOP/s of 2 cores, one for each thread of a rank"));
}

TEST_CASE("more threads than cores, and none, are refused", "[zerolab]") {
  for (const char* command : {"train", "compare"}) {
    CAPTURE(command);
    const Finished many = zerolab({command, "--threads", "100000"});
    CHECK(many.code == 2);
    CHECK(contains(many.err, "--threads 100000 is more than this process can use: it has "));
    CHECK(zerolab({command, "--threads", "0"}).code == 2);
  }
}

}  // namespace cli
