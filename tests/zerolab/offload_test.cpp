// Offloaded parameters and optimizers in the program: what is moved, and what the host must hold.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

using namespace cli;

namespace {

using Json = nlohmann::json;

const std::vector<std::string> kBoth = {"--offload-param", "cpu", "--set",
                                        "zero_optimization.offload_optimizer.device=cpu"};

std::vector<std::string> with(std::vector<std::string> flags,
                              const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Json stage_of_plan(const std::vector<std::string>& more) {
  const Finished plan = zerolab(
      with({"plan", "--model", "tiny", "--ranks", "3", "--stages", "zero3", "--json"}, more));
  REQUIRE(plan.code == 0);
  return Json::parse(plan.out)["stages"][0];
}

Finished train(const std::vector<std::string>& more) {
  return zerolab(with({"train", "--model", "tiny", "--sample", "0", "--stage", "zero3", "--ranks",
                       "3", "--steps", "2"},
                      more));
}

int64_t peak_of(const Json& stage) {
  return std::max(stage["predicted_peak_total_bytes"][0].get<int64_t>(),
                  stage["predicted_init_peak_total_bytes"][0].get<int64_t>());
}

}  // namespace

TEST_CASE("compare, plan and train report the same moves, as predicted", "[zerolab][moves]") {
  const auto flags = with({"--set", "gradient_accumulation_steps=2", "--precision", "bf16"}, kBoth);
  const Json plan = stage_of_plan(flags)["moves"];
  const Finished trained = train(with(flags, {"--json"}));
  REQUIRE(trained.code == 0);
  const Finished compared = zerolab(with({"compare", "--model", "tiny", "--ranks", "3", "--steps",
                                          "2", "--json", "--stages", "zero1,zero3"},
                                         flags));
  REQUIRE(compared.code == 0);
  const Json train_moves = Json::parse(trained.out)["moves"];
  REQUIRE((plan.size() == 2 && train_moves.size() == 2 * 3));
  const Json comparison = Json::parse(compared.out);
  for (const Json& stage : comparison["stages"]) {
    CHECK(stage.contains("moves") == (stage["stage"] != "ddp"));
    if (stage["stage"] == "ddp") continue;
    CHECK(stage["moves"].size() == 2 * 3);
    for (const Json& row : stage["moves"]) {
      CHECK(row["bytes_per_step"] == row["predicted_bytes_per_step"]);
      CHECK(row["moves_per_step"] == row["predicted_moves_per_step"]);
      const Json& planned = plan[row["move"] == "host to device" ? 0 : 1];
      CHECK(planned["move"] == row["move"]);
      const auto same = [&](const Json& other) {
        return other["rank"] == row["rank"] && other["move"] == row["move"] &&
               other["bytes_per_step"] == row["bytes_per_step"];
      };
      // zero1 moves other bytes; zero2, whose bits zero3 has here, the same gradients.
      const bool like_zero3 = stage["stage"] == "zero3" ||
                              (stage["stage"] == "zero2" && row["move"] == "device to host");
      CHECK(std::ranges::any_of(train_moves, same) == like_zero3);
      CHECK((planned["predicted_bytes_per_step"] == row["bytes_per_step"]) == like_zero3);
    }
  }
  const Finished text = train(flags);
  CHECK(contains(text.out, "per rank and step: "));
  CHECK(contains(text.err, "parameters on the host"));
}

TEST_CASE("the host memory that plan predicts is enough to the byte; with one less nothing starts",
          "[zerolab][moves]") {
  const int64_t host = stage_of_plan(kBoth)["predicted_peak_host_bytes"][0];
  CHECK(train(with(kBoth, {"--host-memory", std::to_string(host)})).code == 0);
  const Finished less = train(with(kBoth, {"--host-memory", std::to_string(host - 1)}));
  CHECK(less.code == 3);
  for (const std::string& part :
       {std::string("out of host memory"), std::to_string(host) + " bytes",
        std::to_string(host - 1) + " bytes",
        std::string("nothing was started. Try a larger limit")})
    CHECK(contains(less.err, part));
  CHECK_FALSE(contains(less.err, "step 1"));
}

// zero3 with both on the host, N 3: (4 + 4 + 8) * 34,752 / 3 bytes, and in the update of a block
// the reduced gradient shard, 4 * 12,720 / 3.
TEST_CASE("plan and compare say what does not fit the host's limit, with the bytes",
          "[zerolab][moves]") {
  constexpr int64_t kHost = 185'344 + 16'960;
  const auto limited = [](const char* command, int64_t bytes) {
    return zerolab(with({command, "--model", "tiny", "--ranks", "3", "--stages", "zero3",
                         "--host-memory", std::to_string(bytes)},
                        kBoth));
  };
  const Finished fits = limited("plan", kHost), less = limited("plan", kHost - 1);
  CHECK(fits.code == 0);
  CHECK(contains(fits.out, "fits 197.56 KiB of the host"));
  CHECK(contains(fits.out, "yes, 0 B left"));
  CHECK(less.code == 3);
  CHECK(contains(less.out, "no, 1 B short"));
  CHECK(contains(less.out, "No stage fits. The smallest, zero3, needs"));
  CHECK(contains(less.out, "and 197.56 KiB of host memory. Try"));
  const Finished compared = limited("compare", 102'400);
  CHECK(compared.code == 3);
  CHECK(contains(compared.out,
                 "; the limit is 100.00 KiB, and 'zerolab plan' says what it needs.\n"));
}

TEST_CASE("a model that does not fit the device fits with its state on the host",
          "[zerolab][moves]") {
  const int64_t with_offload = peak_of(stage_of_plan(kBoth));
  REQUIRE(with_offload < peak_of(stage_of_plan({})));
  const std::vector<std::string> limit = {"--device-memory", std::to_string(with_offload)};
  CHECK(train(limit).code == 3);
  CHECK(train(with(limit, kBoth)).code == 0);
  CHECK(train(with({"--device-memory", std::to_string(with_offload - 1)}, kBoth)).code == 3);
}

TEST_CASE("config init writes offload_param, for zero3 only", "[zerolab]") {
  const Finished zero3 = zerolab({"config", "init", "--stage", "zero3", "--offload-param", "cpu"});
  CHECK(zero3.code == 0);
  CHECK(contains(zero3.out, "\"offload_param\": {\"device\": \"cpu\"}"));
  CHECK_FALSE(contains(zerolab({"config", "init", "--stage", "zero3"}).out, "offload_param"));
  const Finished zero2 = zerolab({"config", "init", "--stage", "zero2", "--offload-param", "cpu"});
  CHECK(zero2.code == 2);
  CHECK(contains(zero2.err, "use --stage zero3"));
}
