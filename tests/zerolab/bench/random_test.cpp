// bench random: every promise of every stage, on randomly generated configurations and on a set
// that holds every pair of values.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/zerolab/process.h"

using namespace cli;

namespace {

// Sanitizers are ten times slower, and a few configurations reach all of the code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRandom = 20;
#else
constexpr int kRandom = 200;
#endif

nlohmann::json document(const Finished& finished) { return nlohmann::json::parse(finished.out); }

}  // namespace

TEST_CASE("200 randomly generated configurations keep every promise", "[zerolab]") {
  const Finished finished =
      run({.arguments = {"bench", "random", "--count", std::to_string(kRandom), "--seed",
                         "20261121", "--json", "-q"},
           .timeout = 250});
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(document(finished)["count"] == kRandom);
  CHECK(document(finished)["failed"].empty());
}

TEST_CASE(
    "configurations that hold every pair of values keep every promise (DeepSpeed issue 996 was a "
    "bug of one pair)",
    "[zerolab]") {
  const Finished finished =
      run({.arguments = {"bench", "random", "--pairwise", "--json", "-q"}, .timeout = 250});
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(document(finished)["count"] >= 25);  // 5 rank counts times 4 sizes are already 20 pairs
  CHECK(document(finished)["failed"].empty());
}

// A loss scale of 2^40 that cannot fall: the first overflow ends compare with 1.
const std::vector<std::string> kFailing = {"--",
                                           "--set",
                                           "fp16.enabled=true",
                                           "--set",
                                           "bf16.enabled=false",
                                           "--set",
                                           "fp16.loss_scale=0",
                                           "--set",
                                           "fp16.initial_scale_power=40",
                                           "--set",
                                           "fp16.hysteresis=1",
                                           "--set",
                                           "fp16.min_loss_scale=1099511627776"};

Finished bench(std::vector<std::string> flags, const std::vector<std::string>& rest) {
  flags.insert(flags.begin(), {"bench", "random"});
  flags.insert(flags.end(), rest.begin(), rest.end());
  return zerolab(flags);
}

TEST_CASE("a failing configuration is printed with a command that repeats the failure",
          "[zerolab]") {
  const Finished finished = bench({"--count", "2", "--json", "-q"}, kFailing);
  CHECK(finished.code == 1);
  const auto json = document(finished);
  REQUIRE(json["failed"].size() == 2);
  CHECK(json["failed"][1]["index"] == 2);
  CHECK(json["failed"][1]["exit_code"] == 1);
  const std::string repeat = json["failed"][1]["repeat"];
  CHECK(repeat.starts_with("zerolab compare --steps 3 --ranks "));
  CHECK(shell("\"$ZEROLAB\" " + repeat.substr(8)).code == 1);
  const Finished text = bench({"--count", "1"}, kFailing);
  CHECK(contains(text.out, "configuration 1 ended with 1"));
  CHECK(contains(text.out, "the loss scale is at its minimum"));
  CHECK(contains(text.out, "1 configurations of seed 1337: 1 failed"));
}

TEST_CASE("a configuration that does not fit is not a failure; refused flags end the run at once",
          "[zerolab]") {
  const Finished small = bench({"--count", "2", "-q"}, {"--", "--device-memory", "1000"});
  CHECK(small.code == 0);
  CHECK(contains(small.out, "0 failed, 2 did not fit their memory"));
  const Finished refused = bench({"--count", "100"}, {"--", "--no-such-flag"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "has no flag '--no-such-flag'"));
  CHECK(bench({"--count", "1"}, {"--", "--help"}).code == 2);
  CHECK(bench({"--pairwise", "--count", "3"}, {}).code == 2);
}

TEST_CASE("the seed determines the configurations", "[zerolab]") {
  const auto drawn = [](const char* seed) {
    std::string all;
    const auto json = document(bench({"--count", "3", "--seed", seed, "--json", "-q"}, kFailing));
    for (const auto& failure : json["failed"]) all += failure["repeat"].get<std::string>();
    return all;
  };
  CHECK(contains(drawn("4"), "zerolab compare"));
  CHECK(drawn("4") == drawn("4"));
  CHECK(drawn("4") != drawn("5"));
}
