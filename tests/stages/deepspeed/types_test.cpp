// Every key of the schema with every kind of value: no crash, and a finding for each wrong type.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "stages/deepspeed/keys.h"
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
  if (key.text.starts_with("stage 3:") || key.path().ends_with("zero_hpz_partition_size") ||
      key.path() == "zerolab.replicas")
    sets.push_back("zero_optimization.stage=3");
  if (key.path().ends_with("sub_group_size"))
    for (const char* set :
         {"zero_optimization.stage=1",
          R"(zero_optimization.offload_optimizer={"device": "nvme", "nvme_path": "/x"})"})
      sets.push_back(set);
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

// Whether a value has a wrong type by the schema, written independently of the reader.
bool plainly_wrong(const ConfigKey& key, const std::string& v) {
  const bool object = v[0] == '{', array = v[0] == '[', text = v[0] == '"',
             boolean = v == "true" || v == "false";
  const bool number = !object && !array && !text && !boolean && v != "null";
  switch (key.type.kind) {
    case Kind::boolean: return object || array || number || (text && v != "\"auto\"");
    case Kind::whole:
    case Kind::seed:
    case Kind::number:
      return boolean || object || array || v == "\"abc\"" || v == "\"\"" || v == "\"yes\"";
    case Kind::text:
    case Kind::path: return object || array || number || boolean;
    case Kind::choice:  // none of the texts is a choice
      return v != "null" && v != "\"auto\"" && !(boolean && key.type.or_boolean);
    case Kind::texts: return object || number || boolean || v == "[1]" || v == "[[]]";
    case Kind::betas: return v != "null" && v != "\"auto\"" && v != "[0.5, 0.5]";
    case Kind::object: return array || text ? v != "\"auto\"" : number || boolean;
    case Kind::any: return false;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "every kind of value of every key is read without a crash, and a wrong type has a finding",
    "[stages]") {
  int wrong = 0;
  for (const ConfigKey& key : zl::config_keys()) {
    for (const std::string value : kValues) {
      CAPTURE(key.path(), value);
      const auto loaded = load_with(key, value);
      if (!plainly_wrong(key, value)) continue;
      ++wrong;
      CHECK(found(loaded, key));
      if (key.use == ConfigUse::honoured && !key.path().starts_with("zero_optimization"))
        CHECK_FALSE(loaded.ok());
    }
  }
  CHECK(wrong > 1000);
}

TEST_CASE("a number is never NaN, infinite, a boolean, or negative where that has no meaning",
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

TEST_CASE("a number in quotes counts where DeepSpeed declares types, and nowhere else",
          "[stages]") {
  struct Case {
    const char *key, *value;
    bool taken;
  };
  for (const Case& c :
       std::vector<Case>{{"zero_optimization.stage", "\"2\"", true},
                         {"zero_optimization.stage", "2.0", true},
                         {"zero_optimization.stage", "2.5", false},
                         {"zero_optimization.stage", "true", false},
                         {"zero_optimization.stage", "\"1.\"", false},
                         {"zero_optimization.stage", "\"+-1\"", false},
                         {"zero_optimization.reduce_bucket_size", "5e8", true},
                         {"zero_optimization.reduce_bucket_size", "\"5e8\"", false},
                         {"zero_optimization.reduce_bucket_size", "\"1__0\"", false},
                         {"zero_optimization.stage3_module_granularity_threshold", "-1", true},
                         {"fp16.enabled", "\"maybe\"", false},
                         {"fp16.enabled", "2", false},
                         {"fp16.hysteresis", "\"3\"", true},
                         {"fp16.loss_scale", "\"128\"", true},
                         {"fp16.loss_scale", "\"nan\"", false},
                         {"fp16.loss_scale", "true", false},
                         {"fp16.loss_scale_window", "true", false},
                         {"fp16.min_loss_scale", "true", false},
                         {"zero_optimization.offload_optimizer.ratio", "\"1\"", true},
                         {"zero_optimization.offload_optimizer.device", "\"CPU\"", false},
                         {"csv_monitor.job_name", "3", false},
                         {"comms_logger.prof_ops", "3", false},
                         {"comms_logger.prof_ops", "\"all_reduce\"", false},
                         {"gradient_clipping", "\"1.0\"", false},
                         {"wall_clock_breakdown", "\"yes\"", false},
                         {"wall_clock_breakdown", "1", false},
                         {"train_batch_size", "\"32\"", false},
                         {"train_batch_size", "32.0", true},
                         {"communication_data_type", "\"FP16\"", true},
                         {"zerolab.recompute", "\"yes\"", false},
                         {"zerolab.recompute", "\"Full\"", false},
                         {"zerolab.recompute", "\"full\"", true},
                         {"zerolab.steps", "\"7\"", false}}) {
    CAPTURE(c.key, c.value);
    CHECK(load("", {"scheduler.type=WarmupLR", std::string(c.key) + "=" + c.value}).ok() ==
          c.taken);
  }
  CHECK(load("", {"fp16.loss_scale=\"128\""}).config.loss_scale.static_scale == 128);
  CHECK(load("", {"data_types.grad_accum_dtype=torch.float32", "bf16.enabled=true"})
            .config.grad_accum_dtype == zl::Dtype::f32);
}

TEST_CASE("a finding about a wrong value says what was expected", "[stages]") {
  struct Case {
    const char *set, *says;
  };
  for (const Case& c : std::vector<Case>{
           {"zero_optimization.overlap_comm=maybe", "true or false, not the string \"maybe\""},
           {"zero_optimization.sub_group_size=5.5", "a whole number of at least 1, not 5.5"},
           {"zero_optimization.offload_optimizer.device=gpu",
            "one of \"none\", \"cpu\", \"nvme\", not the string \"gpu\""},
           {"zero_optimization.offload_optimizer.ratio=2", "a number from 0 to 1, not 2"},
           {"csv_monitor.job_name=3", "a string without zero bytes, not 3"},
           {"fp16.loss_scale=-1", "a number of at least 0, not -1"},
           {"fp16.loss_scale_window=many", "a whole number, not the string \"many\""},
           {"communication_data_type=int8", "one of \"fp32\", \"fp16\", \"bf16\", not the string"},
           {"gradient_allreduce_op=max", "one of \"mean\", \"sum\", not the string \"max\""}}) {
    const std::string set = c.set;
    CAPTURE(set);
    const auto loaded = load("", {set});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, "--set " + set.substr(0, set.find('=')) + ": error: expected ", c.says));
  }
}

TEST_CASE("every key is honoured, or its value describes what zerolab does, or it has a finding",
          "[stages]") {
  for (const ConfigKey& key : zl::config_keys()) {
    if (key.use == ConfigUse::honoured || key.ours.empty()) continue;
    CAPTURE(key.path());
    CHECK(found(load_with(key, std::string(key.ours)), key) ==
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

TEST_CASE("no key is in the schema twice, and every row is complete", "[stages]") {
  std::set<std::string> seen;
  for (const ConfigKey& key : zl::config_keys()) {
    CAPTURE(key.path());
    CHECK(seen.insert(key.path()).second);
    CHECK_FALSE(key.text.empty());
    CHECK(zl::find_config_key(key.block, key.key) == &key);
    for (const std::string_view value : {key.deepspeed, key.ours}) {
      if (!value.empty() && value != "null")
        CHECK(zl::misfit(key, zl::parse_json(value, "schema")).empty());
    }
  }
  CHECK(seen.size() > 200);
}
