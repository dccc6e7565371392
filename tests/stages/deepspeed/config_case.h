// One configuration of a test: writes its text to a file, loads it and searches its findings.
#pragma once

#include <unistd.h>

#include <catch2/catch_message.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"

namespace config_case {

// A file that lives as long as the test.
class File {
 public:
  explicit File(const std::string& text) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("zl-config-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".json");
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Loads a file of this text, or none if it is "". The file is called "ds.json" in what comes back.
inline zl::LoadedConfig load(const std::string& text, const std::vector<std::string>& sets = {},
                             int ranks = 4) {
  const File file(text);
  zl::LoadedConfig loaded = zl::load_config({text.empty() ? "" : file.path(), sets, ranks});
  for (zl::ConfigFinding& f : loaded.findings) {
    if (f.where.starts_with(file.path())) f.where.replace(0, file.path().size(), "ds.json");
  }
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
  for (const std::string& line : lines(loaded)) {
    if (line.starts_with(begin) && line.find(part) != std::string::npos) return true;
  }
  return false;
}

inline int errors(const zl::LoadedConfig& loaded) {
  int n = 0;
  for (const zl::ConfigFinding& f : loaded.findings)
    n += f.severity == zl::ConfigFinding::Severity::error;
  return n;
}

}  // namespace config_case
