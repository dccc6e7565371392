// Every source file is formatted as clang-format 14 formats it. Other versions break lines in other
// places, so that without this one the test is skipped; with ZEROLAB_REQUIRE_CLANG_FORMAT set, as
// .ci/run does, it fails instead.

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>

#include "tests/architecture/source_text.h"
#include "tests/paths.h"

namespace architecture {
namespace {

bool succeeds(const std::string& command) {
  return std::system(("cd '" ZEROLAB_SOURCE_DIR "' && " + command).c_str()) == 0;
}

// The name of clang-format 14. Without it the calling test ends here.
std::string clang_format() {
  for (const std::string name : {"clang-format-14", "clang-format"})
    if (succeeds(name + " --version 2>&1 | grep -q ' version 14\\.'")) return name;
  const std::string reason =
      "there is no clang-format 14 here; install it (apt: clang-format-14) to run this test";
  if (std::getenv("ZEROLAB_REQUIRE_CLANG_FORMAT") != nullptr) FAIL(reason);
  SKIP(reason);
  return "";
}

}  // namespace

TEST_CASE("every source file is formatted as clang-format 14 formats it",
          "[architecture][format]") {
  std::string command = clang_format() + " --dry-run -Werror";
  for (const File& file : source_files()) command += " '" + file.path + "'";
  CHECK(succeeds(command));  // it prints what is wrong
}

TEST_CASE("the format check notices a space too many and a line too wide",
          "[architecture][format]") {
  const std::string program = clang_format();
  const auto formatted = [&](const std::string& text) {
    return succeeds("printf '%s\\n' '" + text + "' | " + program +
                    " --dry-run -Werror --assume-filename=nn/gpt.cpp 2>/dev/null");
  };
  CHECK(formatted("int x = 1;"));
  CHECK(!formatted("int x  = 1;"));
  const std::string fits(90, 'x');
  CHECK(formatted("int " + fits + " = 12;"));     // 100 columns
  CHECK(!formatted("int " + fits + " = 1234;"));  // 102
}

}  // namespace architecture
