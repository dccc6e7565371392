// One configuration of a test: writes its text to a file, loads it and searches its findings.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/deepspeed/keys.h"
#include "tests/nn/scratch_folder.h"

namespace config_case {

// The table of keys, with the defaults as values.
inline const std::vector<zl::ConfigKey>& keys() {
  static zl::Config defaults;
  static const std::vector<zl::ConfigKey> all = zl::config_keys(defaults);
  return all;
}

// Loads a file of this text, or none if it is "". The file is called "ds.json" in what comes back.
inline zl::LoadedConfig load(const std::string& text, const std::vector<std::string>& sets = {},
                             int ranks = 4) {
  std::optional<zl::ScratchFolder> folder;
  const std::string file = text.empty() ? "" : folder.emplace().write("ds.json", text);
  zl::LoadedConfig loaded = zl::load_config({file, sets, ranks});
  for (zl::ConfigFinding& f : loaded.findings)
    if (!file.empty() && f.where.starts_with(file)) f.where.replace(0, file.size(), "ds.json");
  return loaded;
}

// The lines as people see them.
inline std::vector<std::string> lines(const zl::LoadedConfig& loaded) {
  std::vector<std::string> all;
  for (const zl::ConfigFinding& f : loaded.findings) all.push_back(to_string(f));
  return all;
}

inline std::string joined(const zl::LoadedConfig& loaded) {
  std::string all;
  for (const std::string& line : lines(loaded)) all += line + "\n";
  return all;
}

// Whether one line begins with `begin` and contains `part`.
inline bool says(const zl::LoadedConfig& loaded, const std::string& begin,
                 const std::string& part = "") {
  UNSCOPED_INFO("expected: " << begin << " … " << part << "\nfound:\n" << joined(loaded));
  for (const std::string& line : lines(loaded))
    if (line.starts_with(begin) && line.find(part) != std::string::npos) return true;
  return false;
}

inline int errors(const zl::LoadedConfig& loaded) {
  int n = 0;
  for (const zl::ConfigFinding& f : loaded.findings)
    n += f.severity == zl::ConfigFinding::Severity::error;
  return n;
}

// "a=1; .b=2" as the list of --sets a=1 and zero_optimization.b=2.
inline std::vector<std::string> sets_of(const std::string& text) {
  std::vector<std::string> sets;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("; ", at), text.size());
    const std::string set = text.substr(at, end - at);
    sets.push_back(set.starts_with(".") ? "zero_optimization" + set : set);
    at = end + 2;
  }
  return sets;
}
inline zl::LoadedConfig with(const std::string& sets) { return load("", sets_of(sets)); }

// What these --sets must give no finding for.
inline zl::Config config_of(const std::string& sets) {
  const zl::LoadedConfig loaded = with(sets);
  INFO(sets << "\n" << joined(loaded));
  CHECK(loaded.findings.empty());
  return loaded.config;
}

struct Row {
  const char *sets, *finding;  // of the key of the last set: "error: expected …"; "": none at all
};

// An error is the only one, and a note or a warning comes without any.
inline void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const zl::LoadedConfig loaded = with(row.sets);
    const std::string finding = row.finding, last = sets_of(row.sets).back();
    CAPTURE(row.sets, finding);
    if (finding.empty()) CHECK(joined(loaded) == "");
    if (finding.empty()) continue;
    CHECK(says(loaded, "--set " + last.substr(0, last.find('=')) + ": " + finding));
    CHECK(errors(loaded) == finding.starts_with("error"));
  }
}

}  // namespace config_case
