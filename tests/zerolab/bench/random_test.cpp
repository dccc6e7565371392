// bench random: every promise of every stage and of a resumed run, on randomly generated
// configurations and on a set that holds every pair of values.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tests/zerolab/process.h"

using namespace cli;

namespace {

// Sanitizers are ten times slower, and a few configurations reach all of the code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const std::string kCount = "10";
#else
const std::string kCount = "150";
#endif

nlohmann::json document(const Finished& finished) { return nlohmann::json::parse(finished.out); }

// Why a configuration may be refused. Any other sentence is a finding.
const std::vector<std::string> kReasons = {
    R"(communication_data_type: error: (bf16|fp16) keeps \d+ significant bits of a sum, and )"
    R"(zerolab\.reproducible adds in fp32)",
    R"(zero3_qwz quantizes its parameter shard on the device)",
    R"(replicated micro-batches have no reproducible sums)",
    R"(--ranks: '1,2,3' is not a count)",
    R"(several numbers of ranks have the same bits in reproducible mode only)",
    R"((deepspeed-\d|fsdp2|torch-ddp).* sums as the real system does, which is not reproducible)",
    R"((deepspeed-\d|fsdp2|torch-ddp).*: zerolab does not imitate this system's offload)",
    R"((hsdp|zero3_qwz|zero3_qgz) does not support reproducible sums)",
    R"(hsdp on [1235] ranks? has no default groups)",
    R"(: \d ranks? cannot be divided into (\d replicas|nodes of \d))",
    R"(zero3_qgz communicates gradients in 4 bits; leave communication_data_type out)",
    R"(simulate a link between ranks that are threads on the CPU, but here NCCL)",
};

// The refusals of a report that have another reason.
std::string without_reason(const nlohmann::json& report) {
  std::string all;
  for (const auto& refusal : report["refusals"]) {
    const std::string sentence = refusal["reason"];
    if (std::ranges::none_of(kReasons, [&](const std::string& reason) {
          return std::regex_search(sentence, std::regex(reason));
        }))
      all += sentence + "\n  " + refusal["repeat"].get<std::string>() + "\n";
  }
  return all;
}

// Everything ran, nothing failed, and each refusal has a known reason.
nlohmann::json passed(std::vector<std::string> arguments, const std::string& program = "$ZEROLAB") {
  std::string line = program == "$ZEROLAB" ? "\"$ZEROLAB\"" : program;
  line += " bench random --json -q";
  for (const std::string& a : arguments) line += " " + a;
  const Finished finished = shell(line, 500);
  INFO(line << "\n" << finished.out << finished.err);
  CHECK(finished.code == 0);
  const nlohmann::json report = document(finished);
  CHECK(report["ok"] == true);
  CHECK(report["failed"].empty());
  CHECK(without_reason(report) == "");
  return report;
}

}  // namespace

TEST_CASE("150 randomly generated configurations keep every promise", "[zerolab][random]") {
  const auto report = passed({"--count", kCount, "--seed", "20261125"});
  CHECK(report["count"] == std::stoi(kCount));
  CHECK(report["resumed"] > 0);
  CHECK(report["resumed"] < report["count"]);
}

TEST_CASE(
    "150 configurations that hold most pairs of values keep every promise (DeepSpeed issue 996 was "
    "a bug of one pair)",
    "[zerolab][random]") {
  const auto report = passed({"--pairwise", "--count", kCount, "--seed", "20261125"});
  CHECK(report["count"] == std::stoi(kCount));
  // A configuration of m options holds m (m - 1) / 2 pairs, here about 600.
  CHECK(report["pairs_run"] > 600);
  if (kCount == "150") CHECK(report["pairs_run"] > 0.6 * double(report["pairs"]));
}

TEST_CASE("configurations run on NCCL, too", "[zerolab][random]") {
  const auto report = passed({"--count", "10", "--", "--backend", "nccl", "--device", "cpu"},
                             ZEROLAB_BINARY_ON_FAKE);
  CHECK(report["count"] == 10);
}

TEST_CASE("a refusal for another reason is a finding", "[zerolab][random]") {
  nlohmann::json report;
  report["refusals"] = {
      {{"reason", "zerolab: hsdp needs a full moon"}, {"repeat", "zerolab compare"}}};
  CHECK(without_reason(report) == "zerolab: hsdp needs a full moon\n  zerolab compare\n");
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
          "[zerolab][random]") {
  const Finished finished = bench({"--count", "2", "--json", "-q"}, kFailing);
  CHECK(finished.code == 1);
  const auto json = document(finished);
  REQUIRE(json["failed"].size() == 2);
  CHECK(json["failed"][1]["index"] == 2);
  CHECK(json["failed"][1]["exit_code"] == 1);
  const std::string repeat = json["failed"][1]["repeat"];
  CHECK(contains(repeat, "fp16.min_loss_scale=1099511627776"));
  CHECK(shell("zerolab() { \"$ZEROLAB\" \"$@\"; }; " + repeat).code == 1);
  const Finished text = bench({"--count", "1"}, kFailing);
  CHECK(contains(text.out, "configuration 1 ended with 1"));
  CHECK(contains(text.out, "the loss scale is at its minimum"));
  CHECK(contains(text.out, "1 configurations of seed 1337: 1 failed"));
}

TEST_CASE("a configuration that does not fit is not a failure; refused flags end the run at once",
          "[zerolab][random]") {
  const Finished small = bench({"--count", "2", "-q"}, {"--", "--device-memory", "1000"});
  CHECK(small.code == 0);
  CHECK(contains(small.out, "0 failed, 2 did not fit their memory"));
  const Finished refused = bench({"--count", "100"}, {"--", "--no-such-flag"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "has no flag '--no-such-flag'"));
  CHECK(bench({"--count", "1"}, {"--", "--help"}).code == 2);
}

TEST_CASE("the seed determines the configurations", "[zerolab][random]") {
  const auto drawn = [](const char* seed) {
    std::string all;
    const auto json = document(bench({"--count", "3", "--seed", seed, "--json", "-q"}, kFailing));
    for (const auto& failure : json["failed"]) all += failure["repeat"].get<std::string>();
    return all;
  };
  CHECK(contains(drawn("4"), "--ranks "));
  CHECK(drawn("4") == drawn("4"));
  CHECK(drawn("4") != drawn("5"));
}
