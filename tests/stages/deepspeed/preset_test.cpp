// "zerolab": {"as": …} in a configuration: what it selects, and what contradicts it.
#include <catch2/catch_test_macros.hpp>

#include "tests/stages/deepspeed/config_case.h"

using config_case::joined, config_case::load, config_case::says;
using namespace zl;

namespace {

LoadedConfig of(const std::string& ours, const std::string& zero = "") {
  return load(R"({"train_batch_size": 8, "zero_optimization": {)" + zero + R"(}, "zerolab": {)" +
              ours + "}}");
}

}  // namespace

TEST_CASE("a preset selects the stage that it changes, and is predicted beside it", "[stages]") {
  const LoadedConfig one = of(R"("as": "deepspeed-1")");
  CHECK(joined(one).find("deepspeed-1 is predicted, not run") != std::string::npos);
  CHECK(one.config.stage == StageKind::zero1);
  CHECK(one.config.as == "deepspeed-1");
  CHECK(one.config.reduce_bucket_size == 1);
  CHECK(of(R"("as": "fsdp2")", R"("stage": 3)").ok());
  CHECK(of("", R"("stage": 3)").config.as == "");
}

TEST_CASE("the persistence threshold is of deepspeed-3 alone", "[stages]") {
  const auto threshold = [](const std::string& as, const std::string& zero) {
    return of(as, zero).config.persistence_threshold;
  };
  const std::string three = R"("as": "deepspeed-3")";
  CHECK(threshold(three, "") == 100'000);  // DeepSpeed's own
  CHECK(threshold(three, R"("stage3_param_persistence_threshold": 0)") == 0);
  CHECK(threshold(three, R"("param_persistence_threshold": 7)") == 7);
  CHECK(threshold("", R"("stage": 3, "param_persistence_threshold": 7)") == 0);
  for (const ConfigValue& v :
       effective_values(of(three, R"("stage3_param_persistence_threshold": 5000)")))
    if (v.key == "zero_optimization.stage3_param_persistence_threshold") CHECK(v.value == "5000");
}

TEST_CASE("a preset that is unknown or contradicts other keys is an error", "[stages]") {
  CHECK(says(of(R"("as": "deepspeed-4")"), "", "expected one of \"deepspeed-1\", \"deepspeed-2\""));
  CHECK(says(of(R"("as": "deepsped-2")"), "", "not the string \"deepsped-2\""));
  CHECK(says(of(R"("as": "deepspeed-1")", R"("stage": 2)"), "",
             "is 2, but zerolab.as is \"deepspeed-1\", which is a stage 1"));
  CHECK(says(of(R"("as": "torch-ddp")", R"("stage": 3)"), "", "\"torch-ddp\", which is a stage 0"));
  CHECK_FALSE(of(R"("as": "zero1")").ok());
  CHECK_FALSE(of(R"("as": "deepspeed-1")", R"("stage": 2)").ok());
}
