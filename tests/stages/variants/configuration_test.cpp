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
  CHECK(hpz.config.stage == StageKind::zero3_hpz);
  CHECK(engine_options(hpz.config).ranks_per_node == 4);
  CHECK(load({kWeights}).config.stage == StageKind::zero3_qwz);
  CHECK(load({kGradients}).config.stage == StageKind::zero3_qgz);
  const LoadedConfig nodes = load({kGradients, kHpz + "2"});  // the nodes of zero3_qgz
  CHECK(nodes.config.stage == StageKind::zero3_qgz);
  CHECK(nodes.config.ranks_per_node == 2);
  const LoadedConfig hsdp = load({"zerolab.replicas=2"});
  CHECK(hsdp.config.stage == StageKind::hsdp);
  CHECK(engine_options(hsdp.config).replicas == 2);
  for (const auto& off : {kHpz + "1", std::string("zerolab.replicas=1")})
    CHECK(load({off}).config.stage == StageKind::zero3);  // the twin
}

TEST_CASE("variants that are not there are noted; groups that do not divide the ranks are errors",
          "[stages]") {
  CHECK(says(load({kWeights, kGradients}), "has no effect: zerolab has one stage"));
  CHECK(says(load({kWeights, kHpz + "2"}), "has no effect: zerolab has one stage"));
  CHECK(says(load({"zerolab.replicas=2", kWeights}), "has no effect: zerolab has one stage"));
  CHECK(says(load({kHpz + "3"}), "error: 3 does not divide 8 ranks"));
  CHECK(says(load({"zerolab.replicas=5"}), "error: 5 does not divide 8 ranks"));
  CHECK(load({kWeights, kGradients}).config.stage == StageKind::zero3);
  CHECK(load({kHpz + "2"}).ok());
}

TEST_CASE("keys of variants say where they have no effect", "[stages]") {
  CHECK(says(load({kHpz + "2"}, 8, StageKind::zero3), "has no effect: --stage zero3 overrides it"));
  CHECK(says(load({"zero_optimization.stage=2", kHpz + "2"}), "has no effect in stage 2"));
  CHECK(load({"zero_optimization.stage=2", kHpz + "2"}).config.stage == StageKind::zero2);
  CHECK(load({"zero_optimization.stage=2", kHpz + "3"}).ok());  // it counts nowhere
  CHECK(load({kHpz + "3"}, 8, StageKind::zero2).ok());
  CHECK(says(load({"zerolab.as=deepspeed-3", kHpz + "2"}), "has no effect in zerolab.as"));
}

TEST_CASE("--stage of a variant takes its groups from the keys, without a note", "[stages]") {
  for (const StageKind kind : {StageKind::hsdp, StageKind::zero3_qgz}) {
    const LoadedConfig loaded = load({kHpz + "2"}, 8, kind);
    CHECK_FALSE(says(loaded, "has no effect"));
    CHECK(engine_options(loaded.config).ranks_per_node == 2);
  }
  CHECK_FALSE(says(load({"zerolab.replicas=4"}, 8, StageKind::hsdp), "has no effect"));
  CHECK(says(load({"zerolab.replicas=4"}, 8, StageKind::zero3_qgz), "has no effect"));
  CHECK(engine_options(load({"zerolab.replicas=1"}, 8, StageKind::hsdp).config).replicas == 1);
}
