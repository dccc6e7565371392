#include "tutorials/exercises/grader/rules/header_rules.h"

#include <filesystem>
#include <fstream>
#include <set>

namespace zl::exercises {
namespace {

namespace fs = std::filesystem;

// The files of a rule of make, without its target. "\ " is a space in a name.
std::vector<std::string> files_of(const std::string& rule) {
  std::vector<std::string> all(1);
  const size_t colon = rule.find(": ");
  for (size_t i = colon == std::string::npos ? rule.size() : colon + 1; i < rule.size(); ++i) {
    const bool escaped = rule[i] == '\\' && i + 1 < rule.size() && rule[i + 1] != '\n';
    if (escaped)
      all.back() += rule[++i];
    else if (rule[i] != ' ' && rule[i] != '\n' && rule[i] != '\\')
      all.back() += rule[i];
    else if (!all.back().empty())
      all.emplace_back();
  }
  if (all.back().empty()) all.pop_back();
  return all;
}

// Adds `header` and what it includes in quotes.
void add_with_includes(const fs::path& folder, const std::string& header,
                       std::set<fs::path>& found) {
  if (!found.insert(fs::weakly_canonical(folder / header)).second) return;
  std::ifstream in(folder / header);
  const std::string begin = "#include \"";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(begin))
      add_with_includes(folder, line.substr(begin.size(), line.rfind('"') - begin.size()), found);
}

}  // namespace

std::string foreign_header(const std::string& dependencies, const std::string& folder,
                           const std::vector<std::string>& headers,
                           const std::string& include_folder) {
  std::set<fs::path> known;
  for (const std::string& header : headers) add_with_includes(include_folder, header, known);
  const std::vector<std::string> files = files_of(dependencies);
  for (size_t k = 1; k < files.size(); ++k)
    if (known.count(fs::weakly_canonical(fs::path(folder) / files[k])) == 0) return files[k];
  return "";
}

}  // namespace zl::exercises
