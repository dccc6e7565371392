#include "stages/deepspeed/config.h"

#include <algorithm>

#include "stages/deepspeed/reading.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

constexpr char kThreshold[] = "zero_optimization.stage3_param_persistence_threshold";

// Whether "enabled" of the key's block is false.
bool is_off(const ConfigKey& key, const Config& c) {
  const ConfigKey* on = find_config_key(key.block, "enabled");
  return on && on->member.show && key.key != "enabled" && on->member.show(c) == "false";
}

bool defaults_differ(const ConfigKey& key) {
  return !key.ours().empty() && !key.deepspeed.empty() && key.ours() != key.deepspeed;
}

std::string origin_of(const ConfigKey& key, const LoadedConfig& loaded) {
  const auto text = [name = key.path()](const auto& of, const char* before, const char* after) {
    const auto found = of.find(name);
    return found == of.end() ? "" : before + found->second + after;
  };
  if (const auto given = text(loaded.origins, "", ""); !given.empty()) return given;
  std::string origin = text(loaded.derived, "derived: ", "");
  if (origin.empty())
    origin = loaded.config.defaults == "deepspeed" && defaults_differ(key)
                 ? "default: zerolab.defaults is \"deepspeed\""
                 : "default";
  return text(loaded.automatic, "auto in ", ": ") + origin;
}

}  // namespace

const char* name(Severity severity) {
  constexpr const char* names[] = {"note", "warning", "error"};
  return names[int(severity)];
}

std::string to_string(const ConfigFinding& finding) {
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return printable(str(finding.where, ": ", name(finding.severity), ": ",
                       named ? "" : finding.key + ": ", finding.text));
}

bool LoadedConfig::ok() const {
  return std::ranges::count(findings, Severity::error, &ConfigFinding::severity) == 0;
}

LoadedConfig load_config(const ConfigSource& source) {
  LoadedConfig loaded{.ranks = source.ranks};
  Config& config = loaded.config;
  Reading reading(source, loaded);
  reading.read_text();
  const JsonValue* ours = reading.root().find("zerolab");
  const JsonValue* defaults = ours ? ours->find("defaults") : nullptr;
  const bool theirs = defaults && defaults->text == "deepspeed";
  for (const ConfigKey& key : config_keys())
    if (theirs && !key.deepspeed.empty() && key.deepspeed != "null")
      key.member.store(parse_json(key.deepspeed, "schema"), config);
  config.persistence_threshold.reset();  // the preset has its own default
  if (!source.file.empty()) {
    config.gradient_clipping = 1.0;
    loaded.derived["gradient_clipping"] = "DeepSpeed's default, as a file is given";
  }
  const Config before = config;
  reading.read_keys();
  apply_rules(reading);
  reading.judge_unused(before);
  if (reading.as_run().as != "deepspeed-3") {
    config.persistence_threshold.reset();
    loaded.origins.erase(kThreshold);
    loaded.derived[kThreshold] = "zerolab shards every parameter";
  }
  if (config.partition_activations && !config.replicated_micro_batches) {
    config.partition_activations = false;
    loaded.origins.erase("activation_checkpointing.partition_activations");
  }
  std::ranges::stable_sort(loaded.findings, {}, &ConfigFinding::line);
  return loaded;
}

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  std::vector<ConfigValue> all;
  for (const ConfigKey& key : config_keys()) {
    std::string value;
    if (key.path() == "train_batch_size")
      value = std::to_string(c.micro_batch * c.accumulation * readers(c, loaded.ranks));
    else if (key.member.show && !is_off(key, c) &&
             (!key.when || key.when->otherwise != ConfigCondition::Otherwise::error ||
              key.when->holds(c)))
      value = key.member.show(c);
    if (!value.empty())
      all.push_back({key.path(), value, origin_of(key, loaded), key.ours(),
                     std::string(key.deepspeed), defaults_differ(key)});
  }
  return all;
}

int readers(const Config& config, int ranks) { return config.replicated_micro_batches ? 1 : ranks; }

}  // namespace zl
