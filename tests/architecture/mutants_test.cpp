// tests/mutants: each patch has its header, changes a few lines that are in the tree, and names a
// test that exists. What the patches do, tests/mutants/run tests.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

constexpr int most_lines = 6;                     // removed, and added
const std::string ours = "zerolab's own review";  // the system of a bug that is in no report

struct Patch {
  std::string path;
  std::map<std::string, std::string> header;
  struct Hunk {
    std::string file, old_text;
  };
  std::vector<Hunk> hunks;
  int removed = 0, added = 0;
};

Patch parse(const File& of) {
  static const std::regex key("([A-Z][a-z ]*): (.+)");
  Patch patch{.path = of.path};
  std::string file;
  for (const std::string& line : split_lines(of.text)) {
    std::smatch match;
    if (line.starts_with("--- a/")) {
      file = line.substr(6);
    } else if (line.starts_with("@@")) {
      patch.hunks.push_back({file, ""});
    } else if (file.empty()) {
      if (std::regex_match(line, match, key)) patch.header[match[1]] = match[2];
    } else if (!line.starts_with("+++") && !patch.hunks.empty()) {
      if (line[0] != '+') patch.hunks.back().old_text += line.substr(1) + "\n";
      patch.removed += line[0] == '-';
      patch.added += line[0] == '+';
    }
  }
  return patch;
}

using TextOf = std::function<std::string(const std::string& file)>;

std::vector<std::string> check_patch(Patch patch, const TextOf& text_of,
                                     const std::set<std::string>& tests) {
  static const std::regex with_year("[^(]+ \\(20[0-9][0-9]\\)"),
      library("(tensor|autograd|nn|optim|dist|stages)/.*\\.cpp");
  std::vector<std::string> findings;
  const auto require = [&](bool holds, const std::string& rule) {
    if (!holds) findings.push_back(patch.path + ": " + rule);
  };
  auto& header = patch.header;
  for (const char* key : {"Bug", "System", "Finds"})
    require(!header[key].empty(), std::string("has no line '") + key + ": …'");
  require(std::regex_match(header["System"], with_year), "System has no year at its end");
  if (header["System"].starts_with(ours))
    require(header["Source"].empty(), "a bug of " + ours + " has no Source");
  else
    require(header["Source"].starts_with("https://"), "Source is no address");
  require(tests.contains(header["Finds"]), "there is no test '" + header["Finds"] + "'");
  require(patch.removed + patch.added > 0, "changes nothing");
  require(std::max(patch.removed, patch.added) <= most_lines,
          "removes or adds more than " + std::to_string(most_lines) + " lines");
  for (const Patch::Hunk& hunk : patch.hunks) {
    require(std::regex_match(hunk.file, library), hunk.file + " is no .cpp file of the library");
    const std::string text = "\n" + text_of(hunk.file), old = "\n" + hunk.old_text;
    const size_t at = text.find(old);
    require(at != std::string::npos && text.find(old, at + 1) == std::string::npos,
            "does not apply at one place: " + hunk.file + " has not once\n" + hunk.old_text);
  }
  return findings;
}

}  // namespace

TEST_CASE("every mutant applies, says where it comes from, and names a test", "[architecture]") {
  std::set<std::string> tests;
  for (const File& file : source_files())
    if (is_test(file))
      for (const TestCase& test : test_cases(file)) tests.insert(test.name);
  const auto patches = files_below({"tests/mutants"}, {".patch"});
  CHECK(patches.size() > 10);
  for (const File& patch : patches)
    CHECK(joined(check_patch(parse(patch), read_source, tests)) == "");
}

TEST_CASE("a mutant without a source, a test or its lines is noticed", "[architecture]") {
  const std::string right =
      "Bug: b.\nSystem: s (2023)\nSource: https://x\nFinds: a test\n\n"
      "--- a/nn/gpt.cpp\n+++ b/nn/gpt.cpp\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
  const auto findings = [&](const std::string& from, const std::string& to) {
    const std::string text = std::string(right).replace(right.find(from), from.size(), to);
    return check_patch(parse({"p.patch", text}),
                       [](const std::string&) { return "zero\none\ntwo\nzero\n"; }, {"a test"});
  };
  CHECK(findings("b.", "b.").empty());
  CHECK(findings("System: s (2023)\nSource: https://x", "System: " + ours + " (2026)").empty());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"Bug: b.\n", ""},
           {"2023", "last year"},
           {"https://x", "a book"},
           {"\nSource: https://x", ""},
           {"System: s", "System: " + ours + " and s"},
           {"a test", "no test"},
           {"-two\n", "-2\n"},
           {" one\n-two\n", "-zero\n"},  // which is there twice
           {"+three\n", "+1\n+2\n+3\n+4\n+5\n+6\n+7\n"},
           {"a/nn/gpt.cpp", "a/tests/gpt.cpp"}})
    CHECK(findings(from, to).size() == 1);
}

}  // namespace architecture
