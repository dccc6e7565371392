#include "stages/deepspeed/config.h"

#include <algorithm>
#include <utility>

#include "stages/deepspeed/reading.h"
#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using Severity = ConfigFinding::Severity;
using Otherwise = ConfigCondition::Otherwise;
using Json = JsonValue::Kind;

constexpr char kThreshold[] = "zero_optimization.stage3_param_persistence_threshold";
constexpr SmallFile kFile{"configuration", 256 << 10};  // real files have a few KiB

JsonValue read_object(const std::string& file) {
  JsonValue root;
  root.kind = Json::object;
  if (file.empty()) return root;
  root = parse_json(read_small_file(file, kFile), file);
  require_input(root.kind == Json::object, file, ":", root.line,
                ": a configuration is one JSON object { … }, not ", describe(root));
  return root;
}

// "zero_optimization": true is DeepSpeed's old form of {"stage": 1}.
void convert_old_zero(JsonValue& root, Findings& findings) {
  for (JsonMember& member : root.members) {
    JsonValue& zero = member.value;
    if (member.key != "zero_optimization" || zero.kind != Json::boolean) continue;
    JsonValue stage = zero;
    stage.kind = Json::number, stage.number = zero.boolean, stage.text = zero.boolean ? "1" : "0";
    findings.add(
        Severity::warning, zero, member.key,
        str(describe(zero), " is a deprecated format: write {\"stage\": ", stage.text, "}"));
    zero.kind = Json::object;
    zero.members.push_back({"stage", stage});
  }
}

// JSON, else a string: --set optimizer.type=AdamW needs no quotes. A text that begins with a
// bracket must be JSON.
JsonValue value_of_set(const std::string& text, int set) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool bracket = begin != std::string::npos && (text[begin] == '[' || text[begin] == '{');
  try {
    return parse_json(text, "the value", set);
  } catch (const InputError& e) {
    if (bracket) throw;
  }
  return {.kind = Json::string, .text = text, .set = set};
}

// The value of `key` in the object, added if it is missing.
JsonValue& member_of(JsonValue& object, const std::string& key, int set) {
  for (JsonMember& member : object.members)
    if (member.key == key) return member.value;
  object.members.push_back({key, {.set = set}});
  return object.members.back().value;
}

// The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
// Throws InputError.
JsonValue& value_of(const std::string& key, int set, const Findings& findings, JsonValue& root) {
  JsonValue* object = &root;
  for (size_t begin = 0, levels = 0;; ++levels) {
    const size_t dot = key.find('.', begin);
    JsonValue& member = member_of(*object, key.substr(begin, dot - begin), set);
    if (dot == std::string::npos) return member;
    require_input(levels < kJsonDepth, "the key has more than ", kJsonDepth, " levels");
    if (member.is_null() || member.is_auto()) member.kind = Json::object;
    require_input(member.kind == Json::object, in_quotes(key.substr(0, dot)), " is ",
                  describe(member), " in ", findings.where(member), ", not an object");
    object = &member;
    begin = dot + 1;
  }
}

// Applies "a.b=value". Throws InputError.
void apply_set(const std::string& assignment, int set, const Findings& findings, JsonValue& root) {
  const size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  require_input(equals != std::string::npos && ("." + key + ".").find("..") == std::string::npos,
                "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                in_quotes(assignment));
  JsonValue value = value_of_set(assignment.substr(equals + 1), set);
  value_of(key, set, findings, root) = std::move(value);
}

// Applies a flag, with a note about another value that it replaces. Throws InputError.
void apply_flag(const KeyFlag& given, int set, Findings& findings, JsonValue& root) {
  JsonValue& value = value_of(given.key, set, findings, root);
  const std::string before = value.text.empty() ? describe(value) : value.text;
  if (!value.is_null() && !value.is_auto() && before != given.text)
    findings.add(Severity::note, value, given.key,
                 str(given.flag, " ", given.text, " replaces ", before), true);
  value = given.is_string ? JsonValue{.kind = Json::string, .text = given.text, .set = set}
                          : parse_json(given.text, given.flag, set);
}

// The file with every --set and flag applied. A wrong --set is a finding.
JsonValue read_settings(const ConfigSource& source, Findings& findings) {
  JsonValue root = read_object(source.file);
  convert_old_zero(root, findings);
  JsonValue at;  // of a finding
  for (const std::string& assignment : source.sets) {
    ++at.set;
    try {
      apply_set(assignment, at.set, findings, root);
      convert_old_zero(root, findings);
    } catch (const InputError& e) {
      findings.add(Severity::error, at, "", e.what());
    }
  }
  for (const KeyFlag& flag : source.flags) apply_flag(flag, ++at.set, findings, root);
  return root;
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
  Findings findings(source);
  const JsonValue root = read_settings(source, findings);
  LoadedConfig loaded{.ranks = source.ranks};
  Config& config = loaded.config;
  const JsonValue* ours = root.find("zerolab");
  const JsonValue* defaults = ours ? ours->find("defaults") : nullptr;
  loaded.deepspeed_defaults = defaults && defaults->text == "deepspeed";
  for (const ConfigKey& key : config_keys())
    if (loaded.deepspeed_defaults && key.effect.store && !key.deepspeed.empty() &&
        key.deepspeed != "null")
      key.effect.store(parse_json(key.deepspeed, "schema"), config);
  config.persistence_threshold.reset();  // the preset has its own default
  if (!source.file.empty()) config.gradient_clipping = 1.0;
  const Config before = config;
  Reading reading(source, root, findings, loaded);
  reading.read_all();
  apply_batch_rules(reading);
  apply_training_rules(reading);
  apply_zero_rules(reading);
  apply_activation_rules(reading);
  reading.judge_unused(before);
  if (reading.as_run().as != "deepspeed-3") {
    config.persistence_threshold.reset();
    loaded.origins.erase(kThreshold);
    loaded.derived[kThreshold] = "zerolab shards every parameter";
  }
  loaded.findings = findings.take();
  return loaded;
}

namespace {

// Whether "enabled" of the key's block is false.
bool is_off(const ConfigKey& key, const Config& c) {
  const ConfigKey* on = find_config_key(key.block, "enabled");
  return on && on->effect.show && key.key != "enabled" && on->effect.show(c) == "false";
}

// Of a key that is not given, or "auto".
std::string default_of(const ConfigKey& key, const LoadedConfig& loaded) {
  if (const auto derived = loaded.derived.find(key.name()); derived != loaded.derived.end())
    return "derived: " + derived->second;
  if (loaded.deepspeed_defaults && key.effect.store && key.defaults_differ())
    return "default: zerolab.defaults is \"deepspeed\"";
  return key.key == "gradient_clipping" && loaded.config.gradient_clipping > 0
             ? "default: DeepSpeed's, as a file is given"
             : "default";
}

std::string origin_of(const ConfigKey& key, const LoadedConfig& loaded) {
  const std::string name = key.name();
  if (const auto found = loaded.origins.find(name); found != loaded.origins.end())
    return found->second;
  const auto automatic = loaded.automatic.find(name);
  return (automatic == loaded.automatic.end() ? "" : "auto in " + automatic->second + ": ") +
         default_of(key, loaded);
}

}  // namespace

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  std::vector<ConfigValue> all;
  for (const ConfigKey& key : config_keys()) {
    const std::string name = key.path(), ours = key.ours();
    ConfigValue value{
        name, "", origin_of(key, loaded), ours, std::string(key.deepspeed), key.defaults_differ()};
    const bool hidden =
        is_off(key, c) ||
        (key.when && !key.when->holds(c) &&
         (key.when->otherwise == Otherwise::error || key.when->otherwise == Otherwise::note_range));
    if (name == "train_batch_size")
      value.value = std::to_string(c.micro_batch * c.accumulation * readers(c, loaded.ranks));
    else if (name == "zerolab.defaults")
      value.value = loaded.deepspeed_defaults ? "\"deepspeed\"" : "\"ours\"";
    else if (key.effect.show && !hidden && !key.is_second_name())
      value.value = key.effect.show(c);
    if (!value.value.empty()) all.push_back(std::move(value));
  }
  return all;
}

int readers(const Config& config, int ranks) { return config.replicated_micro_batches ? 1 : ranks; }

}  // namespace zl
