// The keys of DeepSpeed and of the "zerolab" block that make stage 3 a variant.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "stages/deepspeed/config.h"

using namespace zl;

namespace {

LoadedConfig load(std::vector<std::string> sets, int ranks = 8,
                  std::optional<StageKind> flag = std::nullopt) {
  sets.insert(sets.begin(), "zero_optimization.stage=3");
  return load_config({.file = "",
                      .sets = std::move(sets),
                      .ranks = ranks,
                      .precision = std::nullopt,
                      .stage = flag});
}

bool says(const LoadedConfig& loaded, const std::string& text) {
  return std::ranges::any_of(loaded.findings, [&](const ConfigFinding& f) {
    return to_string(f).find(text) != std::string::npos;
  });
}

const std::string kHpz = "zero_optimization.zero_hpz_partition_size=",
                  kWeights = "zero_optimization.zero_quantized_weights=true",
                  kGradients = "zero_optimization.zero_quantized_gradients=true";

}  // namespace

TEST_CASE("keys of ZeRO++ and replicas make stage 3 the variant of that name", "[stages]") {
  const LoadedConfig hpz = load({kHpz + "4"});
  CHECK(hpz.config.stage == StageKind("zero3_hpz"));
  CHECK(hpz.config.ranks_per_node == 4);
  CHECK(load({kWeights}).config.stage == StageKind("zero3_qwz"));
  CHECK(load({kGradients}).config.stage == StageKind("zero3_qgz"));
  const LoadedConfig nodes = load({kGradients, kHpz + "2"}, 8, StageKind("zero3_qgz"));
  CHECK((nodes.ok() && nodes.config.ranks_per_node == 2));  // the nodes of zero3_qgz
  const LoadedConfig hsdp = load({"zerolab.replicas=2"});
  CHECK(hsdp.config.stage == StageKind("hsdp"));
  CHECK(hsdp.config.replicas == 2);
  for (const auto& off : {kHpz + "1", std::string("zerolab.replicas=1")})
    CHECK(load({off}).config.stage == StageKind::zero3);  // the twin
}

TEST_CASE("two keys of variants together are errors, as are groups that do not divide the ranks",
          "[stages]") {
  const std::string one = "\"zero_quantized_weights\": true",
                    zero = R"(zero_optimization={"stage": 3, )";
  const std::string replicas = "zerolab.replicas=2";
  const std::vector<std::vector<std::string>> pairs = {
      {kWeights, kGradients},
      {kWeights, kHpz + "2"},
      {kGradients, kHpz + "2"},
      {kWeights, kGradients, kHpz + "8"},  // DeepSpeed's tutorial of ZeRO++
      {zero + one + R"(, "zero_hpz_partition_size": 2.0})"},
      {zero + one + R"(, "zero_quantized_gradients": true, "zero_hpz_partition_size": 1})"},
      {replicas, kWeights},
      {replicas, kGradients},
      {replicas, kHpz + "2"}};
  for (const auto& sets : pairs) {
    CAPTURE(sets);
    const LoadedConfig loaded = load(sets);
    CHECK_FALSE(loaded.ok());
    CHECK(says(loaded, "each select a stage, and no stage does both; keep one"));
    ConfigSource compared{.file = "", .sets = sets, .ranks = 8, .several_stages = true};
    compared.sets.insert(compared.sets.begin(), "zero_optimization.stage=3");
    CHECK_FALSE(load_config(compared).ok());
    CHECK(load(sets, 8, StageKind("zero3_qwz")).ok());  // --stage says what to run
    CHECK(load(sets, 8, StageKind::zero3).ok());
  }
  CHECK(load({kWeights, kHpz + "1"}).config.stage == StageKind("zero3_qwz"));
  CHECK(load({kWeights, "zero_optimization.zero_quantized_gradients=false"}).ok());
  CHECK(load({"zero_optimization.stage=2", kWeights, kGradients}).ok());  // they count in 3 only
  CHECK(says(load({kHpz + "3"}), "error: 3 does not divide 8 ranks"));
  CHECK(says(load({"zerolab.replicas=5"}), "error: 5 does not divide 8 ranks"));
  CHECK(load({kHpz + "2"}).ok());
}

TEST_CASE("--ranks-per-node and --replicas replace a size that does not divide the ranks",
          "[stages]") {
  ConfigSource source{.file = "", .sets = {"zero_optimization.stage=3", kHpz + "3"}, .ranks = 8};
  CHECK_FALSE(load_config(source).ok());
  source.ranks_per_node = 4;
  CHECK(load_config(source).ok());
  source.sets[1] = "zerolab.replicas=3";
  CHECK_FALSE(load_config(source).ok());
  source.replicas = 2;
  CHECK(load_config(source).ok());
}

TEST_CASE("keys of variants say where they have no effect", "[stages]") {
  const std::string none = "has no effect: it chooses zero3_hpz only where one run has stage 3";
  CHECK(says(load({kHpz + "2"}, 8, StageKind::zero3), none));
  CHECK(says(load({"zero_optimization.stage=2", kHpz + "2"}), none));
  CHECK(load({"zero_optimization.stage=2", kHpz + "2"}).config.stage == StageKind::zero2);
  CHECK(load({"zero_optimization.stage=2", kHpz + "3"}).ok());  // it counts nowhere
  CHECK(load({kHpz + "3"}, 8, StageKind::zero2).ok());
  CHECK(says(load({"zerolab.as=deepspeed-3", kHpz + "2"}), none));
  const ConfigSource compared{
      .file = "", .sets = {"zero_optimization.stage=3", kHpz + "2"}, .several_stages = true};
  CHECK(says(load_config(compared), none));
}

TEST_CASE("--stage of a variant takes its groups from the keys, without a note", "[stages]") {
  for (const StageKind kind : {StageKind("hsdp"), StageKind("zero3_qgz")}) {
    const LoadedConfig loaded = load({kHpz + "2"}, 8, kind);
    CHECK_FALSE(says(loaded, "has no effect"));
    CHECK(loaded.config.ranks_per_node == 2);
  }
  CHECK_FALSE(says(load({"zerolab.replicas=4"}, 8, StageKind("hsdp")), "has no effect"));
  CHECK(says(load({"zerolab.replicas=4"}, 8, StageKind("zero3_qgz")), "has no effect"));
  CHECK(load({"zerolab.replicas=1"}, 8, StageKind("hsdp")).config.replicas == 1);
}
