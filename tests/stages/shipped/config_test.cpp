// "zerolab": {"as": …} in a configuration: what it selects, and what contradicts it.
#include <catch2/catch_test_macros.hpp>

#include "stages/variants/shipped.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::joined, config_case::load, config_case::says;
using namespace zl;

namespace {

LoadedConfig of(const std::string& ours, const std::string& zero = "") {
  return load(R"({"train_batch_size": 8, "zero_optimization": {)" + zero + R"(}, "zerolab": {)" +
              ours + "}}");
}

EngineOptions options_of(const LoadedConfig& loaded) {
  return as_shipped(engine_options(loaded.config));
}

}  // namespace

TEST_CASE("a preset selects its stage and takes its system's defaults", "[stages]") {
  const LoadedConfig one = of(R"("as": "deepspeed-1")");
  CHECK(joined(one) == "");
  CHECK(one.config.stage == StageKind::deepspeed_1);
  CHECK(options_of(one).reduce_bucket_size == 500'000'000);
  CHECK(options_of(one).optimizer.separate_master);
  const LoadedConfig three = of(R"("as": "deepspeed-3")", R"("stage": 3)");
  CHECK(joined(three) == "");
  CHECK(three.config.stage == StageKind::deepspeed_3);
  CHECK(options_of(three).overlap == Overlap{.overlap_comm = true,
                                             .prefetch_bucket_size = 50'000'000,
                                             .max_live_parameters = 1'000'000'000,
                                             .max_reuse_distance = 1'000'000'000});
  CHECK(options_of(three).persistence_threshold == 100'000);
  CHECK(options_of(of("", R"("stage": 3)")).overlap == Overlap{});  // the paper's stage
}

TEST_CASE("a key of the file wins over a preset's default, also where it has ours", "[stages]") {
  const EngineOptions three =
      options_of(of(R"("as": "deepspeed-3")",
                    R"("reduce_bucket_size": 1800000, "stage3_prefetch_bucket_size": 0,
            "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 0)"));
  CHECK(three.reduce_bucket_size == 1'800'000);
  CHECK(three.overlap.overlap_comm);  // not given
  CHECK_FALSE(
      options_of(of(R"("as": "deepspeed-3")", R"("overlap_comm": false)")).overlap.overlap_comm);
  CHECK(options_of(of(R"("as": "deepspeed-3")", R"("overlap_comm": null)")).overlap.overlap_comm);
  CHECK(three.overlap.prefetch_bucket_size == 0);
  CHECK(three.overlap.max_reuse_distance == 0);
  CHECK(three.persistence_threshold == 0);
}

TEST_CASE("config explain has the persistence threshold of deepspeed-3, and its origin",
          "[stages]") {
  const auto shown = [](const LoadedConfig& loaded, const std::string& of = "param") {
    for (const ConfigValue& v : effective_values(loaded))
      if (v.key == "zero_optimization.stage3_" + of + "_persistence_threshold")
        return v.value + " " + v.origin;
    return std::string();
  };
  CHECK(shown(of(R"("as": "deepspeed-3")"), "model") ==
        "9223372036854775807 fixed: another limit has no effect yet");
  CHECK(shown(of(R"("as": "deepspeed-3")")) == "100000 default");
  const std::string given =
      shown(of(R"("as": "deepspeed-3")", R"("stage3_param_persistence_threshold": 5000)"));
  CHECK(given.starts_with("5000 "));
  CHECK(given.find("fixed") == std::string::npos);
  CHECK(
      shown(of(R"("as": "deepspeed-3")", R"("param_persistence_threshold": 7)")).starts_with("7 "));
  CHECK(shown(of("", R"("stage": 3)")) == "0 fixed: DeepSpeed's way has no effect yet");
  CHECK(shown(of(R"("as": "deepspeed-1")")) == "0 fixed: DeepSpeed's way has no effect yet");
}

TEST_CASE("a preset that is unknown or contradicts other keys is an error", "[stages]") {
  CHECK(says(of(R"("as": "deepspeed-4")"), "", "expected one of deepspeed-1, deepspeed-2"));
  CHECK(says(of(R"("as": "deepsped-2")"), "", "did you mean \"deepspeed-2\"?"));
  CHECK(says(of(R"("as": "deepspeed-1")", R"("stage": 2)"), "",
             "is 2, but zerolab.as is \"deepspeed-1\", which is a stage 1"));
  CHECK(says(of(R"("as": "torch-ddp")", R"("stage": 3)"), "", "\"torch-ddp\", which is a stage 0"));
  CHECK(says(of(R"("as": "fsdp2", "reproducible": true)"), "", "leave it out"));
  CHECK(says(of(R"("as": "deepspeed-2")", R"("offload_optimizer": {"device": "cpu"})"), "",
             "is not imitated by deepspeed-2"));
  for (const auto& [ours, zero] : {std::pair{R"("as": "zero1")", ""},
                                   {R"("as": "deepspeed-1")", R"("stage": 2)"},
                                   {R"("as": "fsdp2", "reproducible": true)", ""}})
    CHECK_FALSE(of(ours, zero).ok());
  CHECK(of(R"("as": "fsdp2")", R"("stage": 3)").ok());
}

TEST_CASE("what a preset does not imitate is refused outside of files, too", "[stages]") {
  CHECK_THROWS_AS(as_shipped({.stage = StageKind::deepspeed_1, .reproducible = true}), InputError);
  CHECK_THROWS_AS(
      as_shipped({.stage = StageKind::torch_ddp, .offload_optimizer = OffloadDevice::cpu}),
      InputError);
  CHECK_NOTHROW(as_shipped({.stage = StageKind::zero1, .reproducible = true}));
}
