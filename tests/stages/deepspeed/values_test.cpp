// The output of config explain: every setting with its origin and both defaults. The table of the
// documentation.

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::load;
using zl::ConfigKey, zl::ConfigUse, zl::ConfigValue;

namespace {

ConfigValue value(const zl::LoadedConfig& loaded, const std::string& key) {
  for (const ConfigValue& v : effective_values(loaded))
    if (v.key == key) return v;
  return {};
}

// Keys of the schema that have a value.
std::set<std::string> honoured() {
  std::set<std::string> keys;
  for (const ConfigKey& key : zl::config_keys())
    if (key.use == ConfigUse::honoured && key.type.kind != zl::ConfigType::Kind::object &&
        key.path() != "zero_optimization.cpu_offload" &&
        key.path() != "zero_optimization.cpu_offload_param" &&
        key.path() != "optimizer.params.torch_adam" &&  // it chooses weight_decay's default
        zl::find_config_key(key.block, "stage3_" + std::string(key.key)) == nullptr)
      keys.insert(key.path());
  return keys;
}

}  // namespace

TEST_CASE("every honoured key has an effective value in a configuration that uses it", "[stages]") {
  const std::string common =
      R"("comms_logger": {"enabled": true}, "csv_monitor": {"enabled": true}, )"
      R"("tensorboard": {"enabled": true}, )"
      R"("train_batch_size": 8)";
  std::set<std::string> keys;
  for (const std::string& text :
       {"{" + common + "}",
        "{" + common + R"(, "optimizer": {"type": "SGD"}, "fp16": {"enabled": true},
        "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 2000}}})",
        "{" + common + R"(, "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR"}})"}) {
    for (const ConfigValue& v : effective_values(load(text))) {
      keys.insert(v.key);
      CHECK_FALSE(v.origin.empty());
    }
  }
  for (const std::string& key : honoured()) {
    CAPTURE(key);
    CHECK(keys.count(key) == 1);
  }
  CHECK(keys.count("zero_optimization.offload_optimizer.ratio") == 0);  // it has no effect
}

TEST_CASE("the values are those that the configuration has", "[stages]") {
  const auto loaded = load(
      "{\"train_batch_size\": 32, \"gradient_accumulation_steps\": "
      "\"auto\",\n\"zero_optimization\": {\"stage\": "
      "3,\n\"reduce_bucket_size\": 5e8},\n\"bf16\": {\"enabled\": true}}",
      {"zerolab.steps=7"});
  CHECK(value(loaded, "train_batch_size").value == "32");
  CHECK(value(loaded, "train_micro_batch_size_per_gpu").value == "8");
  CHECK(value(loaded, "train_micro_batch_size_per_gpu").origin == "derived: 32 / 4 ranks / 1");
  CHECK(value(loaded, "gradient_accumulation_steps").origin.find("auto in ") == 0);
  CHECK(value(loaded, "gradient_accumulation_steps").origin.ends_with(".json:1: default"));
  CHECK(value(loaded, "zero_optimization.reduce_bucket_size").value == "500000000");
  CHECK(value(loaded, "zero_optimization.reduce_bucket_size").origin.ends_with(".json:3"));
  CHECK(value(loaded, "zero_optimization.allgather_bucket_size").value == "1");
  CHECK(value(loaded, "zero_optimization.allgather_bucket_size").origin == "default");
  CHECK(value(loaded, "zerolab.steps").origin == "--set zerolab.steps");
  CHECK(value(loaded, "data_types.grad_accum_dtype").value == "\"bf16\"");
  CHECK(value(loaded, "gradient_clipping").value == "1");
  CHECK(value(loaded, "gradient_clipping").origin == "default: DeepSpeed's, as a file is given");
  CHECK(value(loaded, "optimizer.params.momentum").key.empty());
  CHECK(value(load(""), "gradient_clipping").value == "0");
  CHECK(value(load("", {"gradient_clipping=0.5"}), "gradient_clipping").value == "0.5");
}

TEST_CASE("DeepSpeed's default is listed where it differs from zerolab's, and only there",
          "[stages]") {
  const auto loaded = load("");
  for (const char* key :
       {"gradient_clipping", "zero_optimization.reduce_bucket_size",
        "zero_optimization.overlap_comm", "zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.stage3_max_reuse_distance"}) {
    CAPTURE(key);
    CHECK(value(loaded, key).differ);
  }
  for (const char* key :
       {"optimizer.params.lr", "optimizer.params.eps", "zero_optimization.stage", "fp16.enabled",
        "csv_monitor.enabled", "tensorboard.enabled", "zerolab.seed"}) {
    CAPTURE(key);
    CHECK(value(loaded, key).key == key);
    CHECK_FALSE(value(loaded, key).differ);
  }
  const auto theirs = load("", {"zerolab.defaults=deepspeed"});
  CHECK(value(theirs, "zero_optimization.reduce_bucket_size").value == "500000000");
  CHECK(value(theirs, "zero_optimization.reduce_bucket_size").origin ==
        "default: zerolab.defaults is \"deepspeed\"");
  CHECK(value(theirs, "zerolab.defaults").value == "\"deepspeed\"");
}

TEST_CASE("the schema's defaults are those of an empty configuration", "[stages]") {
  for (const ConfigValue& v : effective_values(load(""))) {
    if (v.ours.empty() || v.origin.starts_with("fixed")) continue;
    CAPTURE(v.key);
    CHECK(v.value == v.ours);
  }
}

TEST_CASE("the tables of tutorials/reference/configuration.md are the schema's output",
          "[stages]") {
  std::ifstream in(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials/reference/configuration.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::string begin = "<!-- zerolab config explain --keys -->\n\n", page = text.str();
  const size_t at = page.find(begin);
  REQUIRE(at != std::string::npos);
  CHECK(page.substr(at + begin.size()) == zl::config_keys_table());
  std::string wrong = zl::config_keys_table();
  wrong.replace(wrong.find("500000000"), 9, "200000000");
  CHECK(page.substr(at + begin.size()) != wrong);
}
