#include "stages/deepspeed/reading.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tensor/io/small_file.h"
#include "tensor/printable.h"

namespace zl {
namespace {

using nlohmann::json;
using enum ConfigFinding::Severity;

// Blocks in which DeepSpeed ignores a key that it does not know.
constexpr std::string_view kLoose[] = {
    "",           "optimizer",      "scheduler",      "activation_checkpointing",
    "data_types", "torch_autocast", "data_efficiency"};

bool is_absent(const json& value) { return value.is_null() || value == "auto"; }

// Whether a value of a key without effect asks for nothing: it is what zerolab always does, or
// false, null, "auto", {}, or "enabled" is one of them.
bool asks_for_nothing(const json& value, const std::string& always) {
  const std::string asked = value.is_number() ? str(double(value)) : text_of(value.dump());
  if (!always.empty())
    return always.size() == asked.size() && strcasecmp(always.c_str(), asked.c_str()) == 0;
  return is_absent(value) || asked == "false" || value == json::object() ||
         (value.contains("enabled") && asks_for_nothing(value["enabled"], ""));
}

// JSON, else a string: --set optimizer.type=AdamW needs no quotes. A text that begins with a
// bracket must be JSON.
json value_of_set(const std::string& text) try {
  Places unused;
  return json::parse(plain_json(text, "the value", unused));
} catch (const InputError&) {
  if (text.find_first_of("[{") == std::min(text.find_first_not_of(" \t\r\n"), text.size())) throw;
  return json::parse(in_quotes(text, text.npos));
}

// The file, with each --set and flag in it.
struct Document {
  Reading& r;
  json root = json::object();
  Places places = {{"", ""}};

  // The value of "a.b" as it is so far; it and the objects around it are added if they are missing.
  // Throws InputError.
  json& at(const std::string& key, const std::string& where) {
    require_input(std::ranges::count(key, '.') < kJsonDepth, "the key has more than ", kJsonDepth,
                  " levels");
    json* value = &root;
    std::istringstream names(key);
    std::string path;
    for (std::string name; std::getline(names, name, '.'); value = &(*value)[name]) {
      if (is_absent(*value)) *value = json::object();
      require_input(value->is_object(), in_quotes(path), " is ", describe(value->dump()), " in ",
                    innermost(places, path), ", not an object");
      places.try_emplace(path = path_of(path, name), where);
    }
    return *value;
  }

  void set(const std::string& key, const std::string& where, const json& value) {
    at(key, where) = value;
    std::erase_if(places, [&](const auto& place) { return place.first.starts_with(key + "."); });
    places[key] = where;
  }

  // A wrong --set is a finding.
  void read_text() {
    const ConfigSource& s = r.source;
    if (!s.file.empty())
      root = json::parse(
          plain_json(read_small_file(s.file, {"configuration", 256 << 10}), s.file, places));
    require_input(root.is_object(), places[""], ": a configuration is one JSON object { … }, not ",
                  describe(root.dump()));
    for (const std::string& assignment : s.sets) {
      const size_t equals = assignment.find('=');
      const std::string key = assignment.substr(0, equals), where = "--set " + shown_path(key);
      try {
        require_input(equals != key.npos && ("." + key + ".").find("..") == key.npos,
                      "expected KEY=VALUE with a key such as zero_optimization.stage, not ",
                      in_quotes(assignment));
        set(key, where, value_of_set(assignment.substr(equals + 1)));
      } catch (const InputError& e) {
        r.loaded.findings.push_back({error, where, e.what(), ""});
      }
    }
    for (const auto& [flag, key, text, is_string] : s.flags) {
      const json was = at(key, flag);
      if (const std::string old = text_of(was.dump()); !is_absent(was) && old != text)
        r.loaded.findings.push_back(
            {note, innermost(places, key), str(flag, " ", text, " replaces ", old), key, true});
      set(key, flag, is_string ? json::parse(in_quotes(text, text.npos)) : value_of_set(text));
    }
  }

  // Reads each value of the object at `path`, whose keys are those of `block`.
  void walk(const json& object, const std::string& path, const std::string& block) {
    for (const bool objects : {false, true})  // they come last: a type says which parameters exist
      for (const auto& [name, value] : object.items()) {
        if (value.is_object() != objects) continue;
        const std::string here = path_of(path, name);
        // DeepSpeed knows two names of a key: "stage3_…" without its beginning too.
        const ConfigKey* row = find_key(r.keys, block, "stage3_" + name);
        if (!row) row = find_key(r.keys, block, here == "bfloat16" ? "bf16" : name);
        if (!row) unknown(here, name, block);
        if (row && !value.is_null()) read(*row, value, here);
      }
  }

  void read(const ConfigKey& key, const json& value, const std::string& path) {
    const std::string name = key.path(), where = innermost(places, path), before = key.value();
    const auto [at, is_new] = r.given.emplace(name, Reading::Given{value.dump(), where});
    if (!is_new)
      return r.loaded.findings.push_back(
          {error, where, "is given under two names; leave one of the two out", path});
    if (is_absent(value)) r.loaded.automatic[name] = where;
    if (is_absent(value) || !key.member.store) return;
    const std::string expected = key.member.store(at->second.json), type = key.block + ".type";
    at->second.is_default = key.value() == before;
    r.loaded.origins[name] = where;
    if (!expected.empty())
      r.add(error, name, "expected ", expected, ", not ", describe(at->second.json));
    else if (value.is_object() &&
             (key.key != "params" ||
              (key.block == "scheduler" ? r.value(type) != nullptr : !r.is_wrong(type))))
      walk(value, path, name);
  }

  void unknown(const std::string& path, const std::string& name, const std::string& block) const {
    std::vector<std::string> names;
    for (const ConfigKey& key : r.keys)
      if (key.block == block) names.push_back(key.key);
    const std::string nearest = nearest_name(name, names), where = innermost(places, path);
    const auto home = std::ranges::find(r.keys, name, &ConfigKey::key);
    const bool ignored = std::ranges::count(kLoose, block) > 0;
    std::string text = "unknown key";
    if (!nearest.empty())
      text += "; did you mean \"" + nearest + "\"?";
    else if (home != r.keys.end() && std::ranges::count(r.keys, name, &ConfigKey::key) < 3)
      text += "; it belongs " +
              (home->block.empty() ? "at the top level" : "in \"" + home->block + "\"");
    if (block != "zerolab") text += ignored ? " (DeepSpeed ignores it)" : " (DeepSpeed refuses it)";
    r.loaded.findings.push_back({ignored && r.in_file(where) ? warning : error, where, text, path});
  }
};

// Findings about values that nothing uses in the run that the settings give.
void judge_unused(Reading& r) {
  Config run = r.as_run();
  for (const ConfigKey& key : config_keys(run)) {
    const auto& [reason, refused] = key.unused;
    const Reading::Given* given = r.value(key.path());
    if (reason.empty() || !given) continue;
    if (key.member.store ? refused || !given->is_default
                         : !asks_for_nothing(json::parse(given->json), key.always))
      r.add(refused ? error : note, key.path(), refused ? "" : "has no effect: ", reason);
  }
}

}  // namespace

Config Reading::as_run() const {
  Config run = config;
  run.stage = source.stage.value_or(config.stage);
  run.precision = source.precision.value_or(config.precision);
  if (source.several_stages) run.stage = StageKind::zero3, run.as = "deepspeed-3";
  return run;
}

const char* name(ConfigFinding::Severity severity) {
  return severity == error ? "error" : severity == warning ? "warning" : "note";
}

std::string to_string(const ConfigFinding& finding) {
  const bool named = finding.key.empty() || finding.where == "--set " + finding.key;
  return printable(str(finding.where, ": ", name(finding.severity), ": ",
                       named ? "" : finding.key + ": ", finding.text));
}

bool LoadedConfig::ok() const {
  return std::ranges::count(findings, error, &ConfigFinding::severity) == 0;
}

LoadedConfig load_config(const ConfigSource& source) {
  LoadedConfig loaded;
  Reading reading{source, loaded};
  Document document{reading};
  document.read_text();
  const json::json_pointer defaults("/zerolab/defaults");
  if (document.root.contains(defaults) && document.root[defaults] == "deepspeed")
    for (const ConfigKey& key : reading.keys)
      if (!key.deepspeed.empty()) key.member.store(key.deepspeed);
  if (!source.file.empty()) {
    loaded.config.gradient_clipping = 1.0;
    reading.derive("gradient_clipping", "DeepSpeed's default, as a file is given");
  }
  reading.given[""] = {.json = "", .where = document.places[""]};
  document.walk(document.root, "", "");
  apply_rules(reading);
  judge_unused(reading);
  for (ConfigFinding& finding : loaded.findings) finding.key = shown_path(finding.key);
  std::ranges::stable_sort(loaded.findings, {}, [&](const ConfigFinding& f) {  // --set comes last
    return reading.in_file(f.where) ? std::stol(f.where.substr(source.file.size() + 1)) : INT64_MAX;
  });
  return loaded;
}

}  // namespace zl
