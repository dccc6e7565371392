// Reads a configuration key by key, as its row of the schema says. A value of the wrong type or
// range and a key that nothing uses become findings, so no key is accepted and ignored.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"

namespace zl {

// Collects findings.
class Findings {
 public:
  using Severity = ConfigFinding::Severity;
  explicit Findings(const ConfigSource& source) : source_(source) {}

  void add(Severity severity, const JsonValue& at, const std::string& key, const std::string& text,
           bool of_flag = false);
  // "ds.json:7", "--set zero_optimization.stage" or "--stage".
  std::string where(const JsonValue& value) const;
  // All errors and the first notes and warnings: those of the file by line, then those of --set and
  // flags.
  std::vector<ConfigFinding> take();

 private:
  struct Entry {
    int line;
    ConfigFinding finding;
  };
  const ConfigSource& source_;
  std::vector<Entry> entries_;
};

// One reading of all keys. Keys go by their first names, such as "optimizer.params.lr".
class Reading {
 public:
  using Severity = ConfigFinding::Severity;
  // `loaded` has the defaults; what is read goes there.
  Reading(const ConfigSource& source, const JsonValue& root, Findings& findings,
          LoadedConfig& loaded)
      : source(source), loaded(loaded), config(loaded.config), findings_(findings), root_(root) {}

  // Stores every value that fits its key, with findings about the others.
  void read_all() { walk(root_, "", ""); }
  // Findings about values that nothing uses in the run that the settings give. Call it last.
  void judge_unused(const Config& defaults);

  // Whether the key is there; also as null or "auto".
  bool has(const std::string& name) const { return seen_.contains(name); }
  bool is_auto(const std::string& name) const { return has(name) && at(name).written->is_auto(); }
  // Whether the key has a value that does not fit, which has its finding.
  bool is_wrong(const std::string& name) const { return has(name) && !at(name).wrong.empty(); }
  // The value if it is given and fits, as DeepSpeed takes it; else null.
  const JsonValue* value(const std::string& name) const;
  // The value of a switch if it is given; else `otherwise`.
  bool is_on(const std::string& name, bool otherwise = false) const;
  std::string where(const std::string& name) const { return findings_.where(*at(name).written); }

  // A finding at the key; if that is absent, at the block.
  void add(Severity severity, const std::string& name, const std::string& text);
  void error(const std::string& name, const std::string& text) { add(Severity::error, name, text); }
  void warn(const std::string& name, const std::string& text) {
    add(Severity::warning, name, text);
  }
  void note(const std::string& name, const std::string& text) { add(Severity::note, name, text); }

  // The settings of the run: flags win over the file. Where several stages run, those of the stage
  // that uses most keys.
  Config as_run() const;

  const ConfigSource& source;
  LoadedConfig& loaded;
  Config& config;

 private:
  struct Seen {
    const ConfigKey* key;
    const JsonValue* written;
    JsonValue value;         // as DeepSpeed takes it
    std::string path;        // as it is written: "bfloat16.enabled" of the name "bf16.enabled"
    std::string wrong = "";  // why it does not fit; null and "auto" fit
    bool late = false;       // a number out of range: judge_unused() says whether that matters
  };
  const Seen& at(const std::string& name) const { return seen_.at(name); }
  // `block`: the name of the block that has the path.
  void walk(const JsonValue& object, const std::string& path, const std::string& block);
  void read(const ConfigKey& key, const JsonValue& value, const std::string& path,
            const JsonValue& in);
  void unknown(const JsonMember& member, const std::string& path, const std::string& block);

  Findings& findings_;
  const JsonValue& root_;
  std::map<std::string, Seen> seen_;
};

// What one row cannot say, because it depends on other keys. To be called in this order.
void apply_batch_rules(Reading& reading);     // two of the three sizes give the third
void apply_training_rules(Reading& reading);  // optimizer, scheduler, precision, reports, zerolab
void apply_zero_rules(Reading& reading);      // stage, variants, offload
void apply_activation_rules(Reading& reading);

}  // namespace zl
