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
struct Reading {
  using Severity = ConfigFinding::Severity;

  // Reads the file, and applies each --set and flag to it. A wrong --set is a finding.
  void read_text();
  // Stores every value that fits its key, with findings about the others.
  void walk(JsonValue& object, const std::string& block);
  // Findings about values that nothing uses in the run that the settings give.
  void judge_unused();

  // Whether the key is there and not null; also as "auto".
  bool has(const std::string& name) const { return seen.contains(name); }
  bool is_auto(const std::string& name) const { return loaded.automatic.contains(name); }
  bool is_wrong(const std::string& name) const { return has(name) && seen.at(name).wrong; }
  // The value if it is given and fits; else null, also if it is "auto", so that a rule can take the
  // default of a key that is absent.
  const JsonValue* value(const std::string& name) const {
    return has(name) && !is_auto(name) && !is_wrong(name) ? seen.at(name).value : nullptr;
  }
  bool is_on(const std::string& name) const { return value(name) && value(name)->text == "true"; }

  // A finding at the key; if that is absent, at the block.
  void add(Severity severity, const std::string& name, const auto&... text) {
    add_text(severity, name, str(text...));
  }
  void add_text(Severity severity, const std::string& name, const std::string& text);
  void add_at(const JsonValue& at, Severity severity, const std::string& key,
              const std::string& text, bool of_flag = false);
  // `config explain` prints that the value of a key follows from others.
  void derive(const std::string& name, const auto&... from) {
    loaded.origins[name] = str("derived: ", from...);
  }

  // The settings of the run: flags win over the file. Where several stages run, those of the stage
  // that uses most keys.
  Config as_run() const;

  // A key that is there. Its value is what read_text() read.
  struct Seen {
    const JsonValue* value;
    bool wrong = false;       // it has an error, such as a value that does not fit
    bool is_default = false;  // as if it were absent
  };
  void store(const std::string& name, const ConfigKey& key, Seen& given);
  JsonValue& value_at(const std::string& key, const std::string& where);
  void unknown(const JsonValue& member, const ConfigKey& given);

  const ConfigSource& source;
  LoadedConfig& loaded;  // has the defaults; what is read goes there
  Config& config = loaded.config;
  JsonValue root{.kind = JsonValue::Kind::object};
  const std::vector<ConfigKey> keys = config_keys(loaded.config);
  std::map<std::string, Seen> seen = {};
};

// What one row cannot say, because it depends on other keys (stages/deepspeed/rules.cpp).
void apply_rules(Reading& reading);

}  // namespace zl
