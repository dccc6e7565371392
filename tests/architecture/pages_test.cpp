// The pages are short, name files and folders that exist, and agree on the version. The sentences
// of tutorials/reference/semantics.md are the names of the tests in
// tests/stages/semantics_test.cpp, so that the page claims only what a test shows.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
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

// The first cell of each row of a Markdown page's tables under "what happens".
std::multiset<std::string> sentences(const std::string& page) {
  std::multiset<std::string> all;
  bool inside = false;
  for (const std::string& line : split_lines(page)) {
    const bool heading = line.starts_with("| what happens |");
    inside = heading || (inside && line.starts_with("|"));
    if (inside && !heading && line.starts_with("| "))
      all.insert(line.substr(2, line.find(" |", 2) - 2));
  }
  return all;
}

// Without the bars and rulers of tables.
int64_t words_of(const std::string& page) {
  std::istringstream in(page);
  return std::count_if(std::istream_iterator<std::string>(in), {}, [](const std::string& word) {
    return std::ranges::any_of(word, [](unsigned char c) { return std::isalnum(c); });
  });
}

// The names of a folder's pages, README apart.
std::vector<std::string> pages_in(const std::string& folder) {
  std::vector<std::string> pages;
  for (const auto& entry : std::filesystem::directory_iterator(ZEROLAB_SOURCE_DIR "/" + folder))
    if (entry.path().extension() == ".md")
      pages.push_back(folder + entry.path().filename().string());
  return pages;
}

std::multiset<std::string> test_names(const std::string& source) {
  std::multiset<std::string> all;
  for (const TestCase& one : test_cases({"", source})) all.insert(one.name);
  return all;
}

}  // namespace

TEST_CASE("the pages name only files and folders that exist", "[architecture]") {
  std::vector<std::string> pages = pages_in("tutorials/reference/");
  for (const char* page :
       {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "THIRD_PARTY_NOTICES.md"})
    pages.push_back(page);
  for (const std::string& page : pages) {
    const std::string folder = page.substr(0, page.rfind('/') + 1);
    const auto in_tree = [&](const std::string& path) {  // links begin at the page's folder
      const std::string root = ZEROLAB_SOURCE_DIR "/";
      return std::filesystem::exists(root + path) || std::filesystem::exists(root + folder + path);
    };
    INFO(page << " names what does not exist");
    CHECK(joined(missing_paths(read_source(page), in_tree)) == "");
  }
}

TEST_CASE("README is two screens, and the pages stay short", "[architecture]") {
  CHECK(split_lines(read_source("README.md")).size() <= 120);
  CHECK(words_of(read_source("tutorials/reference/claims.md")) <= 900);
  CHECK(words_of("| a b\n|---|\nc") == 3);
  int64_t words = 0;
  for (const std::string& page : pages_in("tutorials/reference/"))
    words += words_of(read_source(page));
  CHECK(words <= 13520);
}

TEST_CASE("one version: of the build, the program, the citation and the newest change",
          "[architecture]") {
  const auto found = [](const char* file, const char* pattern) {
    const std::string text = read_source(file);
    std::smatch match;
    return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : file;
  };
  const std::string version = found("CMakeLists.txt", "project\\(zerolab VERSION ([0-9.]+)");
  CHECK(found("tutorials/zerolab/cli/version.h", "\"([0-9.]+)\"") == version);
  CHECK(found("CITATION.cff", "\nversion: ([0-9.]+)") == version);
  CHECK(found("CHANGELOG.md", "\n## ([0-9.]+)") == version);
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
        sentences("| what happens |\n| it rains | clouds |"));
  CHECK(test_names("TEST_CASE(\"it pours\", \"[stages]\") {") !=
        sentences("| what happens |\n| it rains | clouds |"));
}

}  // namespace architecture
