// Configurations at random and by pairs: every promise of every stage, on options that nobody would combine by hand.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace cli;

namespace {

nlohmann::json document(const Finished& finished) { return nlohmann::json::parse(finished.out); }

}  // namespace

TEST_CASE("200 random configurations keep every promise; each that does not is printed as a command line", "[cli]") {
  const Finished finished = run({.arguments = {"bench", "random", "--count", "200", "--seed", "20261121", "--json", "-q"}, .timeout = 250});
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(document(finished)["count"] == 200);
  CHECK(document(finished)["failed"].empty());
}

TEST_CASE("F05 a set of configurations in which every two values of two options meet keeps every promise (DS #996)", "[cli]") {
  const Finished finished = run({.arguments = {"bench", "random", "--pairwise", "--json", "-q"}, .timeout = 250});
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(document(finished)["count"] >= 25);  // 5 numbers of ranks times 4 sizes are 20 pairs already
  CHECK(document(finished)["failed"].empty());
}

TEST_CASE("a configuration that fails is found, printed with its command, and repeats by it", "[cli]") {
  // Nothing fits 1000 bytes: compare ends with 3.
  const Finished finished = zerolab({"bench", "random", "--count", "2", "--json", "-q", "--", "--device-memory", "1000"});
  CHECK(finished.code == 1);
  const auto failed = document(finished)["failed"];
  REQUIRE(failed.size() == 2);
  CHECK(failed[1]["index"] == 2);
  CHECK(failed[1]["exit_code"] == 3);
  const std::string repeat = failed[1]["repeat"];
  CHECK(repeat.starts_with("zerolab compare --steps 3 --ranks "));
  CHECK(shell("\"$ZEROLAB\" " + repeat.substr(8)).code == 3);
  const Finished text = zerolab({"bench", "random", "--count", "1", "--", "--no-such-flag"});
  CHECK(text.code == 1);
  CHECK(contains(text.out, "configuration 1 ended with 2"));
  CHECK(contains(text.out, "has no flag '--no-such-flag'"));
  CHECK(contains(text.out, "1 configurations of seed 1337: 1 failed"));
}

TEST_CASE("one seed draws the same configurations each time, another seed others", "[cli]") {
  const auto drawn = [](const char* seed) {
    std::string all;
    const Finished finished = zerolab({"bench", "random", "--count", "3", "--seed", seed, "--json", "-q", "--", "--device-memory", "1000"});
    const auto json = document(finished);
    for (const auto& failure : json["failed"]) all += failure["repeat"].get<std::string>();
    return all;
  };
  CHECK(contains(drawn("4"), "zerolab compare"));
  CHECK(drawn("4") == drawn("4"));
  CHECK(drawn("4") != drawn("5"));
}
