// Reads a configuration key by key, as its row of the table says. A value of the wrong type or
// range and a key that nothing uses become findings, so no key is accepted and ignored.
#pragma once

#include <map>
#include <string>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"
#include "tensor/error.h"

namespace zl {

// One reading of all keys. Keys go by their first names, such as "optimizer.params.lr".
class Reading {
 public:
  using Severity = ConfigFinding::Severity;
  // `to` has the defaults; what is read goes there.
  Reading(const ConfigSource& from, LoadedConfig& to)
      : source(from), loaded(to), config(to.config), keys_(config_keys(to.config)) {}

  // Reads the file, and applies each --set and flag to it. A wrong --set is a finding.
  void read_text();
  // Stores every value that fits its key, with findings about the others.
  void read_keys() { walk(root_, "", ""); }
  // Findings about values that nothing uses in the run that the settings give.
  void judge_unused(Config& defaults);

  const JsonValue& root() const { return root_; }
  // Whether the key is there and not null; also as "auto".
  bool has(const std::string& name) const { return seen_.contains(name); }
  bool is_auto(const std::string& name) const { return loaded.automatic.contains(name); }
  bool is_wrong(const std::string& name) const { return has(name) && seen_.at(name).wrong; }
  // The value if it is given and fits; else null, also if it is "auto", so that a rule can take the
  // default of a key that is absent.
  const JsonValue* value(const std::string& name) const;
  // Else --set or a flag gives it.
  bool is_in_file(const JsonValue& value) const {
    return value.where.starts_with(source.file + ":");
  }
  bool is_on(const std::string& name) const { return value(name) && value(name)->is_true(); }

  // A finding at the key; if that is absent, at the block.
  void add(Severity severity, const std::string& name, const auto&... text) {
    add_text(severity, name, str(text...));
  }

  // The settings of the run: flags win over the file. Where several stages run, those of the stage
  // that uses most keys.
  Config as_run() const;

  const ConfigSource& source;
  LoadedConfig& loaded;
  Config& config;

 private:
  struct Seen {
    const JsonValue* value;
    std::string path;    // as it is written: "bfloat16.enabled" of the name "bf16.enabled"
    bool wrong = false;  // it does not fit; "auto" fits
  };
  void add_text(Severity severity, const std::string& name, const std::string& text);
  void add_at(const JsonValue& at, Severity severity, const std::string& key,
              const std::string& text, bool of_flag = false);
  JsonValue& value_at(const std::string& key, const std::string& where);
  void put(const std::string& key, JsonValue value);
  // `block`: the name of the block that has the path.
  void walk(const JsonValue& object, const std::string& path, const std::string& block);
  void read(const std::string& name, const ConfigKey& key, Seen& seen);
  void unknown(const JsonValue& member, const std::string& path, const std::string& block);

  JsonValue root_{.kind = JsonValue::Kind::object};
  const std::vector<ConfigKey> keys_;
  std::map<std::string, Seen> seen_;
};

// What one row cannot say, because it depends on other keys (stages/deepspeed/rules.cpp).
void apply_rules(Reading& reading);

}  // namespace zl
