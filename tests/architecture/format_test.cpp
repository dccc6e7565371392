// Every source file is formatted as clang-format 14 formats it. Other versions break lines in other
// places, so that without this one the test is skipped; with ZEROLAB_REQUIRE_CLANG_FORMAT set, as
// .ci/run does, it fails instead.

#include <sys/wait.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

struct Finished {
  int code;
  std::string out;  // stdout and stderr
};

Finished shell(const std::string& command) {
  const std::string in_root = "cd '" ZEROLAB_SOURCE_DIR "' && { " + command + "; } 2>&1";
  std::FILE* pipe = popen(in_root.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 4096> buffer;
  for (size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    out.append(buffer.data(), got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}

// The name of clang-format 14. Without it the calling test ends here.
std::string clang_format() {
  for (const char* name : {"clang-format-14", "clang-format"}) {
    if (shell(std::string(name) + " --version").out.find(" version 14.") != std::string::npos)
      return name;
  }
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
  const Finished result = shell(command);
  INFO(result.out);
  CHECK(result.code == 0);
}

TEST_CASE("the format check notices a space too many and a line too wide",
          "[architecture][format]") {
  const std::string program = clang_format();
  const auto formatted = [&](const std::string& text) {
    const std::string input = "printf '%s\\n' '" + text + "' | ";
    return shell(input + program + " --dry-run -Werror --assume-filename=nn/gpt.cpp").code == 0;
  };
  CHECK(formatted("int x = 1;"));
  CHECK(!formatted("int x  = 1;"));
  const std::string fits(90, 'x');
  CHECK(formatted("int " + fits + " = 12;"));     // 100 columns
  CHECK(!formatted("int " + fits + " = 1234;"));  // 102
}

}  // namespace architecture
