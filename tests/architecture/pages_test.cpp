// README.md and CONTRIBUTING.md name files and folders that exist. The sentences of
// tutorials/reference/semantics.md are the names of the tests in tests/stages/semantics_test.cpp,
// so that the page claims only what a test shows.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"
#include "tests/paths.h"

namespace architecture {
namespace {

// Links of a Markdown page, and paths in backticks that begin with a folder of ours, for which
// `exists` is false. Patterns with * are not paths.
std::vector<std::string> missing_paths(const std::string& page,
                                       const std::function<bool(const std::string&)>& exists) {
  static const std::regex path(
      "\\]\\(([^)#:]+)\\)|"
      "`((tensor|autograd|nn|optim|dist|stages|tutorials|tests|cmake|\\.ci)/[a-z0-9_./]+)[^`]*`");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(page.begin(), page.end(), path), end; it != end; ++it) {
    const std::string found = (*it)[1].matched ? (*it)[1] : (*it)[2];
    if (it->str().find('*') == std::string::npos && !exists(found)) missing.push_back(found);
  }
  return missing;
}

// The first cell of each row of a Markdown page's tables, without headings and rulers.
std::multiset<std::string> sentences(const std::string& page) {
  std::multiset<std::string> all;
  for (const std::string& line : split_lines(page))
    if (line.starts_with("| ") && !line.starts_with("| what happens |"))
      all.insert(line.substr(2, line.find(" |", 2) - 2));
  return all;
}

std::multiset<std::string> test_names(const std::string& source) {
  std::multiset<std::string> all;
  for (const TestCase& one : test_cases({"", source})) all.insert(one.name);
  return all;
}

}  // namespace

TEST_CASE("README and CONTRIBUTING name only files and folders that exist", "[architecture]") {
  const auto in_tree = [](const std::string& path) {
    return std::filesystem::exists(std::string(ZEROLAB_SOURCE_DIR "/") + path);
  };
  for (const char* page : {"README.md", "CONTRIBUTING.md"}) {
    INFO(page << " names what does not exist");
    CHECK(joined(missing_paths(read_source(page), in_tree)) == "");
  }
}

TEST_CASE("a page that names a file which does not exist is noticed", "[architecture]") {
  const auto none = [](const std::string&) { return false; };
  const auto found = [&](const std::string& page) { return missing_paths(page, none); };
  CHECK(found("see [it](nn/gpt.md) and `nn/gpt.cpp`") ==
        std::vector<std::string>{"nn/gpt.md", "nn/gpt.cpp"});
  CHECK(found("`tests/baselines/compare --check`") ==
        std::vector<std::string>{"tests/baselines/compare"});
  CHECK(found("`stages/*.cpp`, [paper](https://arxiv.org), `build/default`, `A/B`").empty());
}

TEST_CASE("every sentence of the table of semantics is a test, and every such test a sentence",
          "[architecture]") {
  const auto said = sentences(read_source("tutorials/reference/semantics.md")),
             shown = test_names(read_source("tests/stages/semantics_test.cpp"));
  CHECK(said.size() >= 13);
  CHECK(said == shown);
}

TEST_CASE("a sentence without a test is noticed", "[architecture]") {
  CHECK(sentences("| what happens | why |\n|---|---|\n| it rains | clouds |\n") ==
        std::multiset<std::string>{"it rains"});
  CHECK(test_names("TEST_CASE(\n    \"it \"\n    \"rains\", \"[stages]\") {") ==
        sentences("| it rains | clouds |"));
  CHECK(test_names("TEST_CASE(\"it pours\", \"[stages]\") {") !=
        sentences("| it rains | clouds |"));
}

}  // namespace architecture
