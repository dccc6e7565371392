// Every key of the schema against every kind of value: nothing crashes, nothing of a wrong type
// passes unsaid.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/config_type.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::load, config_case::says;
using zl::ConfigKey, zl::ConfigType, zl::ConfigUse;
using Kind = ConfigType::Kind;

namespace {

const char* const kValues[] = {"null",
                               "true",
                               "false",
                               "0",
                               "1",
                               "-1",
                               "5",
                               "2.5",
                               "-0.5",
                               "5e8",
                               "1e300",
                               "9223372036854775807",
                               "-9223372036854775808",
                               "\"\"",
                               "\"abc\"",
                               "\"2\"",
                               "\"yes\"",
                               "\"auto\"",
                               "[]",
                               "[1]",
                               "[\"a\"]",
                               "[[]]",
                               "{}",
                               "{\"a\": 1}",
                               "[0.5, 0.5]"};

// --set of what makes the key one that is read: SGD's momentum needs SGD.
std::vector<std::string> company(const std::string& path) {
  const auto ends = [&](const char* name) { return path.ends_with(name); };
  std::vector<std::string> sets;
  if (path != "optimizer" && path != "optimizer.type" && path != "optimizer.params")
    sets.push_back(ends("momentum") || ends("dampening") || ends("nesterov") ? "optimizer.type=SGD"
                   : ends("adam_w_mode")                                     ? "optimizer.type=Adam"
                                         : "optimizer.type=AdamW");
  if (path != "scheduler" && path != "scheduler.type" && path != "scheduler.params") {
    const bool cosine = ends("ratio") || ends("total_num_steps");
    sets.push_back(cosine ? "scheduler.type=WarmupCosineLR" : "scheduler.type=WarmupLR");
    if (cosine) sets.push_back("scheduler.params.total_num_steps=9000");
  }
  return sets;
}

zl::LoadedConfig load_with(const ConfigKey& key, const std::string& value) {
  auto sets = company(key.path());
  if (std::string(key.block) == "fp16") sets.push_back("fp16.enabled=true");
  sets.push_back(key.path() + "=" + value);
  return load("", sets);
}

// Whether there is a finding about the key itself.
bool found(const zl::LoadedConfig& loaded, const ConfigKey& key) {
  for (const zl::ConfigFinding& f : loaded.findings)
    if (f.key == key.path()) return true;
  return false;
}

// What the schema says of a value, written again without the code that reads it.
bool plainly_wrong(const ConfigKey& key, const std::string& v) {
  const bool object = v[0] == '{', array = v[0] == '[', text = v[0] == '"',
             boolean = v == "true" || v == "false";
  const bool number = !object && !array && !text && !boolean && v != "null";
  switch (key.type.kind) {
    case Kind::boolean:
      return object || array || (number && v != "0" && v != "1") || v == "\"abc\"";
    case Kind::whole:
    case Kind::number: return object || array || v == "\"abc\"" || v == "\"\"" || v == "\"yes\"";
    case Kind::text: return object || array || number || boolean;
    case Kind::choice: return v != "null" && v != "\"auto\"";  // none of the values is a choice
    case Kind::texts:
      return object || number || boolean ||
             (std::string(key.block) != "comms_logger" && (v == "[1]" || v == "[[]]"));
    case Kind::betas: return v != "null" && v != "\"auto\"" && v != "[0.5, 0.5]";
    case Kind::object: return array || text ? v != "\"auto\"" : number || boolean;
    case Kind::any: return false;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "F02: every key takes every kind of value without a crash, and says so where the type is wrong",
    "[stages]") {
  int wrong = 0;
  for (const ConfigKey& key : zl::config_keys()) {
    for (const std::string value : kValues) {
      CAPTURE(key.path(), value);
      const auto loaded = load_with(key, value);
      if (!plainly_wrong(key, value)) continue;
      ++wrong;
      CHECK(found(loaded, key));
      if (key.use == ConfigUse::honoured && key.path() != "zero_optimization")
        CHECK_FALSE(loaded.ok());
    }
  }
  CHECK(wrong > 1000);
}

TEST_CASE("F02: no number is NaN, infinite, negative where that is senseless, or a boolean",
          "[stages]") {
  int numbers = 0;
  for (const ConfigKey& key : zl::config_keys()) {
    if (key.type.kind != Kind::whole && key.type.kind != Kind::number) continue;
    ++numbers;
    for (const char* value :
         {"NaN", "nan", "inf", "-inf", "Infinity", "-Infinity", "1e400", "true", "false"}) {
      CAPTURE(key.path(), value);
      CHECK(found(load_with(key, value), key));
    }
    if (key.type.least >= 0) CHECK(found(load_with(key, "-3"), key));
    if (key.type.least >= 1) CHECK(found(load_with(key, "0"), key));
    if (std::isfinite(key.type.most)) CHECK(found(load_with(key, "1e15"), key));
    if (key.type.kind == Kind::whole) CHECK(found(load_with(key, "2.5"), key));
  }
  CHECK(numbers > 50);
}

TEST_CASE("a good value of an honoured number has no finding", "[stages]") {
  for (const ConfigKey& key : zl::config_keys()) {
    if (key.use != ConfigUse::honoured ||
        (key.type.kind != Kind::whole && key.type.kind != Kind::number))
      continue;
    CAPTURE(key.path());
    const bool total = key.path().ends_with("total_num_steps");
    CHECK_FALSE(found(load_with(key, total ? "1e4" : key.type.most < 4 ? "3" : "4"), key));
  }
}

TEST_CASE("pydantic's freedoms hold in the blocks that it checks, and nowhere else", "[stages]") {
  struct Case {
    const char *key, *value;
    bool taken;
  };
  for (const Case& c :
       std::vector<Case>{{"zero_optimization.stage", "\"2\"", true},
                         {"zero_optimization.stage", "2.0", true},
                         {"zero_optimization.stage", "\"2.0\"", true},
                         {"zero_optimization.stage", "2.5", false},
                         {"zero_optimization.reduce_bucket_size", "5e8", true},
                         {"zero_optimization.reduce_bucket_size", "\"5e8\"", false},
                         {"fp16.enabled", "\"yes\"", true},
                         {"fp16.enabled", "\"On\"", true},
                         {"fp16.enabled", "1", true},
                         {"fp16.enabled", "0.0", true},
                         {"fp16.enabled", "\"maybe\"", false},
                         {"fp16.enabled", "2", false},
                         {"fp16.enabled", "null", false},
                         {"fp16.hysteresis", "\"3\"", true},
                         {"fp16.loss_scale", "\"128\"", true},
                         {"fp16.loss_scale", "true", false},
                         {"fp16.loss_scale_window", "true", false},
                         {"fp16.min_loss_scale", "true", false},
                         {"zero_optimization.overlap_comm", "null", true},
                         {"zero_optimization.offload_optimizer", "null", true},
                         {"zero_optimization.offload_optimizer.ratio", "\"1\"", true},
                         {"zero_optimization.offload_optimizer.device", "\"CPU\"", false},
                         {"csv_monitor.job_name", "3", false},
                         {"comms_logger.prof_ops", "3", false},
                         {"gradient_clipping", "\"1.0\"", false},
                         {"wall_clock_breakdown", "\"yes\"", false},
                         {"wall_clock_breakdown", "1", false},
                         {"train_batch_size", "\"32\"", false},
                         {"train_batch_size", "32.0", true},
                         {"communication_data_type", "\"FP16\"", true},
                         {"zerolab.recompute", "\"yes\"", false},
                         {"zerolab.steps", "\"7\"", false}}) {
    CAPTURE(c.key, c.value);
    CHECK(load("", {"scheduler.type=WarmupLR", std::string(c.key) + "=" + c.value}).ok() ==
          c.taken);
  }
  CHECK(load("", {"fp16.enabled=yes"}).config.precision == zl::Dtype::f16);
  CHECK(load("", {"fp16.enabled=\"0\""}).config.precision == zl::Dtype::f32);
  CHECK(load("", {"fp16.loss_scale=\"128\""}).config.loss_scale.static_scale == 128);
}

TEST_CASE("a wrong type carries DeepSpeed's own sentence", "[stages]") {
  struct Case {
    const char *set, *says;
  };
  for (const Case& c : std::vector<Case>{
           {"zero_optimization.overlap_comm=maybe",
            "(DeepSpeed: Input should be a valid boolean, unable to interpret input)"},
           {"zero_optimization.overlap_comm=[]", "(DeepSpeed: Input should be a valid boolean)"},
           {"zero_optimization.sub_group_size=5.5",
            "(DeepSpeed: Input should be a valid integer, got a number with a fractional part)"},
           {"zero_optimization.sub_group_size=\"5e8\"",
            "(DeepSpeed: Input should be a valid integer, unable to parse string as an integer)"},
           {"zero_optimization.sub_group_size=-1",
            "(DeepSpeed: Input should be greater than or equal to 0)"},
           {"zero_optimization.offload_optimizer.device=gpu",
            "(DeepSpeed: Input should be 'none', 'cpu' or 'nvme')"},
           {"zero_optimization.offload_optimizer.ratio=2",
            "(DeepSpeed: Input should be less than or equal to 1)"},
           {"zero_optimization.offload_optimizer.ratio=-1",
            "(DeepSpeed: Input should be greater than or equal to 0)"},
           {"csv_monitor.job_name=3", "(DeepSpeed: Input should be a valid string)"},
           {"fp16.loss_scale=true", "(DeepSpeed: fp16.loss_scale must be a number, not bool)"},
           {"fp16.loss_scale=-1",
            "(DeepSpeed: fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling))"},
           {"fp16.loss_scale_window=many",
            "(DeepSpeed: fp16.loss_scale_window must be an integer)"},
           {"communication_data_type=int8",
            "(DeepSpeed: Invalid communication_data_type. Supported data types: ['fp16', 'bf16', "
            "'fp32']. Got: int8)"},
           {"gradient_allreduce_op=max",
            "(DeepSpeed: Invalid gradient_allreduce_op. Supported operations: ['mean', 'sum']. "
            "Got: 'max')"}}) {
    const std::string set = c.set;
    CAPTURE(set);
    const auto loaded = load("", {set});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, "--set " + set.substr(0, set.find('=')) + ": error: expected ", c.says));
  }
}

TEST_CASE("F03: every key is honoured, or its value has the effect it says, or that is said",
          "[stages]") {
  for (const ConfigKey& key : zl::config_keys()) {
    if (key.use == ConfigUse::honoured || key.ours[0] == '\0') continue;
    CAPTURE(key.path());
    CHECK(found(load_with(key, key.ours), key) ==
          (key.use == ConfigUse::dead));  // as zerolab works anyway
    const std::string other =
        key.type.kind == Kind::boolean  ? (std::string(key.ours) == "true" ? "false" : "true")
        : key.type.kind == Kind::choice ? (std::string(key.block).empty() ? "\"sum\"" : "\"cpu\"")
        : key.type.kind == Kind::text   ? "\"x\""
        : key.type.kind == Kind::object ? "{\"device\": \"cpu\"}"
        : key.type.most <= 1            ? "0.25"
                                        : "3";
    const bool inside = std::string(key.block) == "activation_checkpointing" ||
                        std::string(key.key) == "enabled" ||
                        std::string(key.block) == "zero_optimization.offload_param";
    const auto loaded = load_with(key, other);
    if (key.use == ConfigUse::refused || key.use == ConfigUse::dead) CHECK_FALSE(loaded.ok());
    if (!inside)
      CHECK(found(loaded, key));  // else the block is what is named
    else
      CHECK(loaded.findings.size() == 1);
  }
}

TEST_CASE("no key stands twice in the schema, and every row is complete", "[stages]") {
  std::set<std::string> seen;
  for (const ConfigKey& key : zl::config_keys()) {
    CAPTURE(key.path());
    CHECK(seen.insert(key.path()).second);
    CHECK(key.text[0] != '\0');
    CHECK(zl::find_config_key(key.block, key.key) == &key);
    for (const char* json : {key.deepspeed, key.ours}) {
      const std::string value = json;
      if (!value.empty() && value != "null")
        CHECK(zl::misfit(key, zl::parse_json(value, "schema").root).empty());
    }
  }
  CHECK(seen.size() > 200);
}
