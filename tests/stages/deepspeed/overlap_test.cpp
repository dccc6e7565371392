// The keys of overlap, prefetch and reuse in both spellings, and of reproducible sums: their
// defaults, ours and DeepSpeed's, and what contradicts them.

#include <catch2/catch_test_macros.hpp>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::joined, config_case::load, config_case::says;
using zl::Dtype, zl::Overlap;

namespace {

zl::LoadedConfig of(const std::string& zero, const std::string& ours = "") {
  return load(R"({"train_batch_size": 8, "zero_optimization": {)" + zero +
              (ours.empty() ? "}}" : R"(}, "zerolab": {)" + ours + "}}"));
}

std::string origin(const zl::LoadedConfig& loaded, const std::string& key) {
  for (const zl::ConfigValue& v : effective_values(loaded))
    if (v.key == key) return v.value + " from " + v.origin;
  return "";
}

constexpr Overlap kDeepSpeed{.overlap_comm = true,
                             .prefetch_bucket_size = 50'000'000,
                             .max_live_parameters = 1'000'000'000,
                             .max_reuse_distance = 1'000'000'000};

}  // namespace

TEST_CASE("overlap, prefetch, live parameters and reuse are honoured in both spellings",
          "[stages]") {
  const Overlap expected{.overlap_comm = true,
                         .prefetch_bucket_size = 500,
                         .max_live_parameters = 7000,
                         .max_reuse_distance = 1};
  const auto with = [](const std::string& prefix) {
    return of(R"("stage": 3, "overlap_comm": true, ")" + prefix +
              R"(prefetch_bucket_size": 5e2, ")" + prefix + R"(max_live_parameters": "7000", ")" +
              prefix + R"(max_reuse_distance": 1)");
  };
  for (const char* prefix : {"", "stage3_"}) {
    const auto loaded = with(prefix);
    INFO(joined(loaded));
    CHECK(loaded.findings.empty());
    CHECK(loaded.config.overlap == expected);
    CHECK(engine_options(loaded.config).overlap == expected);
    CHECK(origin(loaded, "zero_optimization.stage3_prefetch_bucket_size").starts_with("500 from "));
    // The origin names the line, and the key where it is not the one that is explained.
    CHECK(origin(loaded, "zero_optimization.stage3_max_reuse_distance")
              .ends_with(*prefix ? ".json:1" : ".json:1: zero_optimization.max_reuse_distance"));
    CHECK(origin(loaded, "zero_optimization.max_reuse_distance").empty());
  }
  CHECK(load("").config.overlap == Overlap{});
  CHECK_FALSE(expected == Overlap{});
}

TEST_CASE("a wrong value of these keys is an error that names it", "[stages]") {
  struct Case {
    const char *key, *value, *text;
  };
  for (const Case& c : {Case{"overlap_comm", "2", "expected true or false, not 2"},
                        {"stage3_prefetch_bucket_size", "-1", "of at least 0, not -1"},
                        {"max_live_parameters", "0.5", "of at least 0, not 0.5"},
                        {"stage3_max_reuse_distance", "1e19", "of at least 0, not 1e19"}}) {
    CAPTURE(c.key, c.value);
    const std::string key = std::string("zero_optimization.") + c.key;
    const auto loaded = load("", {key + "=" + c.value});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, "--set " + key + ": error: expected ", c.text));
  }
}

TEST_CASE("a key in both spellings is an error that names both", "[stages]") {
  const auto loaded = of(R"("stage": 3, "prefetch_bucket_size": 5,
"stage3_prefetch_bucket_size": 7)");
  CHECK(errors(loaded) == 1);
  CHECK(says(loaded,
             "ds.json:1: error: zero_optimization.prefetch_bucket_size: is the same key as "
             "stage3_prefetch_bucket_size, which is 7; leave one of the two out"));
}

TEST_CASE("keys of stage 3 have no effect in other stages, which is a note", "[stages]") {
  for (int stage = 0; stage < 3; ++stage)
    for (const char* key : {"stage3_prefetch_bucket_size", "prefetch_bucket_size",
                            "stage3_max_live_parameters", "max_reuse_distance"}) {
      const auto loaded = of(zl::str("\"stage\": ", stage, ", \"", key, "\": 5"));
      CHECK(loaded.findings.size() == 1);
      CHECK(says(loaded, zl::str("ds.json:1: note: zero_optimization.", key,
                                 ": has no effect in stage ", stage)));
      CHECK(of(zl::str("\"stage\": 3, \"", key, "\": 5")).findings.empty());
    }
  CHECK(of(R"("stage": 2, "stage3_max_reuse_distance": 0)").findings.empty());  // as it is anyway
  CHECK(of(R"("stage": 1, "overlap_comm": true)").findings.empty());
  // plan and compare run all stages.
  const config_case::File file(R"({"train_batch_size": 8, "zero_optimization": {"stage": 1,
    "stage3_prefetch_bucket_size": 5}})");
  CHECK(
      zl::load_config({.file = file.path(), .sets = {}, .several_stages = true}).findings.empty());
}

TEST_CASE("DeepSpeed's defaults overlap in stage 3 alone, prefetch 5e7 and keep 1e9", "[stages]") {
  const std::string theirs = R"("defaults": "deepspeed")";
  CHECK(of(R"("stage": 3)", theirs).config.overlap == kDeepSpeed);
  CHECK(of(R"("stage": 3, "overlap_comm": null)", theirs).config.overlap == kDeepSpeed);
  for (const char* stage : {R"("stage": 0)", R"("stage": 1)", R"("stage": 2)"}) {
    CAPTURE(stage);
    CHECK_FALSE(of(stage, theirs).config.overlap.overlap_comm);
    CHECK(of(std::string(stage) + R"(, "overlap_comm": true)", theirs).config.overlap.overlap_comm);
  }
  CHECK_FALSE(of(R"("stage": 3, "overlap_comm": false)", theirs).config.overlap.overlap_comm);
  CHECK(of(R"("stage": 3, "max_reuse_distance": 0)", theirs).config.overlap.max_reuse_distance ==
        0);
  CHECK(of(R"("stage": 3, "overlap_comm": null)").config.overlap == Overlap{});
  const auto loaded = of(R"("stage": 3)", theirs);
  CHECK(loaded.findings.size() == 1);
  CHECK(says(loaded, "ds.json:1: note: zerolab.defaults: ",
             "DeepSpeed's persistence thresholds have an effect in \"as\": \"deepspeed-3\" only"));
  CHECK(origin(loaded, "zero_optimization.overlap_comm") ==
        "true from default: zerolab.defaults is \"deepspeed\"");
  CHECK(origin(loaded, "zero_optimization.stage3_max_live_parameters") ==
        "1000000000 from default: zerolab.defaults is \"deepspeed\"");
  // A flag for the stage counts, and so does a comparison of several.
  zl::ConfigSource source{.file = "", .sets = {"zerolab.defaults=deepspeed"}};
  CHECK_FALSE(load_config(source).config.overlap.overlap_comm);
  source.stage = zl::StageKind::zero3;
  CHECK(load_config(source).config.overlap == kDeepSpeed);
  source.stage = std::nullopt;
  source.several_stages = true;
  CHECK(load_config(source).config.overlap == kDeepSpeed);
}

TEST_CASE("reproducible sums are honoured, and accumulate in fp32 whatever the precision",
          "[stages]") {
  CHECK_FALSE(load("").config.reproducible);
  CHECK_FALSE(of("", R"("reproducible": false)").config.reproducible);
  const auto loaded = load("", {"zerolab.reproducible=true", "bf16.enabled=true"});
  CHECK(loaded.findings.empty());
  CHECK(engine_options(loaded.config).reproducible);
  CHECK(accumulation_type(loaded.config) == Dtype::f32);
  CHECK(accumulation_type(load("", {"bf16.enabled=true"}).config) == Dtype::bf16);
  CHECK(origin(loaded, "data_types.grad_accum_dtype") ==
        "\"fp32\" from derived: zerolab.reproducible adds in fp32");
  CHECK(origin(loaded, "communication_data_type").starts_with("\"fp32\" from "));
  CHECK(origin(loaded, "zerolab.reproducible") == "true from --set zerolab.reproducible");
}

TEST_CASE("what contradicts reproducible sums is an error", "[stages]") {
  const std::string on = "zerolab.reproducible=true";
  const auto order = load("", {on, "zerolab.ordered=false"});
  CHECK(errors(order) == 1);
  CHECK(says(order, "--set zerolab.reproducible: error: needs sums in rank order"));
  const auto bf16 = load("", {on, "bf16.enabled=true", "data_types.grad_accum_dtype=bf16"});
  CHECK(errors(bf16) == 1);
  CHECK(says(bf16, "--set data_types.grad_accum_dtype: error: bf16 keeps 8 significant bits",
             "in fp32, with 24"));
  const auto fp16 = load("", {on, "communication_data_type=fp16"});
  CHECK(errors(fp16) == 1);
  CHECK(says(fp16, "--set communication_data_type: error: fp16 keeps 11 significant bits"));
  CHECK(load("", {on, "communication_data_type=fp32", "data_types.grad_accum_dtype=fp32"}).ok());
  CHECK(load("", {"communication_data_type=fp16"}).ok());
}
