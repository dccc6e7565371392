#include "stages/deepspeed/config.h"

#include <algorithm>

#include "stages/deepspeed/reading.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;

// `differ`: DeepSpeed's default is another.
std::string origin_of(const std::string& key, const LoadedConfig& loaded, bool differ) {
  const auto automatic = loaded.automatic.find(key), origin = loaded.origins.find(key);
  return str(automatic == loaded.automatic.end() ? "" : "auto in " + automatic->second + ": ",
             origin != loaded.origins.end() ? origin->second
             : differ && loaded.config.defaults == "deepspeed"
                 ? "default: zerolab.defaults is \"deepspeed\""
                 : "default");
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
  LoadedConfig loaded;
  Reading reading{source, loaded};
  reading.read_text();
  const JsonValue* ours = reading.root.find("zerolab");
  const JsonValue* defaults = ours ? ours->find("defaults") : nullptr;
  for (const ConfigKey& key : reading.keys)
    if (defaults && defaults->text == "deepspeed" && !key.deepspeed.empty())
      key.member.store(parse_json(key.deepspeed, "the table"));
  loaded.config.persistence_threshold.reset();  // the preset has its own default
  if (!source.file.empty()) {
    loaded.config.gradient_clipping = 1.0;
    reading.derive("gradient_clipping", "DeepSpeed's default, as a file is given");
  }
  reading.walk(reading.root, "", "");
  apply_rules(reading);
  reading.judge_unused();
  std::ranges::stable_sort(loaded.findings, {}, &ConfigFinding::line);
  return loaded;
}

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  Config config = loaded.config, defaults;
  const std::vector<ConfigKey> keys = config_keys(config), ours = config_keys(defaults);
  std::vector<ConfigValue> all;
  std::string_view off = "none";  // the block that "enabled", its first key, switches off
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (!key.member.show || key.effect.use == ConfigUse::refused || key.block == off) continue;
    const std::string value = key.value(), path = key.path(), default_value = ours[i].value();
    const bool differ = !key.deepspeed.empty() && key.deepspeed != default_value;
    if (key.key == "enabled" && value == "false") off = key.block;
    all.push_back({path, value, origin_of(path, loaded, differ), default_value,
                   std::string(key.deepspeed), differ});
  }
  return all;
}

int readers(const Config& config, int ranks) { return config.replicated_micro_batches ? 1 : ranks; }

}  // namespace zl
