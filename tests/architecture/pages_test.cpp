// README.md and CONTRIBUTING.md name files and folders that exist.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(std::string(ZEROLAB_SOURCE_DIR) + "/" + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool in_tree(const std::string& path) {
  return std::filesystem::exists(std::filesystem::path(ZEROLAB_SOURCE_DIR) / path);
}

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
    if (it->str().find_first_of("*") == std::string::npos && !exists(found))
      missing.push_back(found);
  }
  return missing;
}

}  // namespace

TEST_CASE("README and CONTRIBUTING name only files and folders that exist", "[architecture]") {
  for (const char* page : {"README.md", "CONTRIBUTING.md"}) {
    const auto missing = missing_paths(read(page), in_tree);
    INFO(page << " names what does not exist:\n" << joined(missing));
    CHECK(missing.empty());
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

}  // namespace architecture
