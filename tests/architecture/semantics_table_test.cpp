// The sentences of tutorials/reference/semantics.md are the names of the tests in
// tests/stages/semantics_test.cpp, so that the page claims only what a test shows.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"
#include "tests/architecture/test_cases.h"

namespace architecture {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(std::string(ZEROLAB_SOURCE_DIR) + "/" + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first cell of each row of a Markdown page's tables, without headings and rulers.
std::vector<std::string> sentences(const std::string& page) {
  std::vector<std::string> all;
  for (const std::string& line : split_lines(page)) {
    if (!line.starts_with("| ") || line.starts_with("| what happens |")) continue;
    all.push_back(line.substr(2, line.find(" |", 2) - 2));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> test_names(const std::string& source) {
  std::vector<std::string> all;
  for (const TestCase& one : test_cases({"", source})) all.push_back(one.name);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("every sentence of the table of semantics is a test, and every such test a sentence",
          "[architecture]") {
  const auto said = sentences(read("tutorials/reference/semantics.md")),
             shown = test_names(read("tests/stages/semantics_test.cpp"));
  CHECK(said.size() >= 13);
  CHECK(said == shown);
}

TEST_CASE("a sentence without a test is noticed", "[architecture]") {
  CHECK(sentences("| what happens | why |\n|---|---|\n| it rains | clouds |\n") ==
        std::vector<std::string>{"it rains"});
  CHECK(test_names("TEST_CASE(\n    \"it \"\n    \"rains\", \"[stages]\") {") ==
        sentences("| it rains | clouds |"));
  CHECK(test_names("TEST_CASE(\"it pours\", \"[stages]\") {") !=
        sentences("| it rains | clouds |"));
}

}  // namespace architecture
