// Reads a configuration key by key, as its row of the table says. A value of the wrong type or
// range and a key that nothing uses become findings, so no key is accepted and ignored.
#pragma once

#include <map>
#include <string>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"
#include "tensor/error.h"

namespace zl {

// The element of this path, or of the innermost around it; "" is there.
const auto& innermost(const auto& map, std::string path) {
  while (!map.contains(path)) path.resize(path.find('.') == path.npos ? 0 : path.rfind('.'));
  return map.at(path);
}

// One reading of all keys. Keys go by their first names, such as "optimizer.params.lr".
struct Reading {
  // A key that is there and not null.
  struct Given {
    std::string json, where;
    bool wrong = false;       // it has an error, such as a value that does not fit
    bool is_default = false;  // as if it were absent
  };
  bool has(const std::string& name) const { return given.contains(name); }
  bool is_auto(const std::string& name) const { return loaded.automatic.contains(name); }
  bool is_wrong(const std::string& name) const { return has(name) && given.at(name).wrong; }
  // Null if it is absent, "auto" or wrong, so that a rule can take the default.
  const Given* value(const std::string& name) const {
    return has(name) && !is_auto(name) && !is_wrong(name) ? &given.at(name) : nullptr;
  }
  bool is_on(const std::string& name) const {
    return value(name) && text_of(value(name)->json) == "true";
  }

  // A finding at the key; if that is absent, at the block. A key with an error counts as absent in
  // what follows.
  void add(ConfigFinding::Severity severity, const std::string& name, const auto&... text) {
    if (severity == ConfigFinding::Severity::error && has(name)) given.at(name).wrong = true;
    loaded.findings.push_back({severity, innermost(given, name).where, str(text...), name});
  }
  // Whether this is a line of the file, not a --set or a flag.
  bool in_file(const std::string& where) const { return where.starts_with(source.file + ":"); }
  // `config explain` prints that the value of a key follows from others.
  void derive(const std::string& name, const auto&... from) {
    loaded.origins[name] = str("derived: ", from...);
  }

  // The settings of the run: flags win over the file. Where several stages run, those of the stage
  // that uses most keys.
  Config as_run() const;

  const ConfigSource& source;
  LoadedConfig& loaded;  // has the defaults; what is read goes there
  Config& config = loaded.config;
  const std::vector<ConfigKey> keys = config_keys(loaded.config);
  std::map<std::string, Given> given = {};
};

// What one row cannot say, because it depends on other keys (stages/deepspeed/rules.cpp).
void apply_rules(Reading& reading);

}  // namespace zl
