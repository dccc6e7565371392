#include "tensor/platform/shared_library.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace {

using namespace zl;
using Catch::Matchers::ContainsSubstring;

// LD_LIBRARY_PATH, until the end of the scope.
class SearchIn {
 public:
  explicit SearchIn(const std::string& folders) {
    if (const char* before = std::getenv("LD_LIBRARY_PATH")) before_ = before;
    setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
  }
  ~SearchIn() {
    before_ ? setenv("LD_LIBRARY_PATH", before_->c_str(), 1) : unsetenv("LD_LIBRARY_PATH");
  }

 private:
  std::optional<std::string> before_;
};

std::string problem_of(const std::string& file, const std::string& folder) {
  try {
    SharedLibrary("ours", file, folder);
  } catch (const LibraryError& e) {
    CHECK_THAT(e.cure, ContainsSubstring(file) && ContainsSubstring("LD_LIBRARY_PATH"));
    CHECK(e.what() == e.problem + ". Cure: " + e.cure);
    return e.problem;
  }
  return "it was opened";
}

TEST_CASE(
    "a library that the loader finds need not be where the build found it, and a function has the "
    "header's type",
    "[tensor]") {
  const SharedLibrary library("the C library", "libc.so.6", "/nowhere");
  const decltype(&::getpid) number = library.function("getpid");
  CHECK(number() == getpid());
  CHECK_THROWS_WITH(
      library.function("ours_alone"),
      ContainsSubstring("the C library has no function ours_alone") && ContainsSubstring("Cure: "));
}

TEST_CASE("the error of a missing library lists the searched folders in order, and how to fix it",
          "[tensor]") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / str("zerolab-library-", getpid());
  for (const char* one : {"asked", "built"}) {
    fs::create_directories(folder / one);
    std::ofstream(folder / one / "libours.so.1") << "no library";
  }
  const SearchIn search("/nowhere::" + (folder / "asked").string());
  const std::string problem = problem_of("libours.so.1", folder / "built");
  const size_t asked =
      problem.find(str("ours cannot be opened: ", folder.string(), "/asked/libours.so.1: "));
  const size_t built = problem.find(str("; ", folder.string(), "/built/libours.so.1: "));
  const size_t loader = problem.find("; libours.so.1: ");
  CAPTURE(problem);
  CHECK(
      (asked == 0 && built != std::string::npos && loader != std::string::npos && built < loader));
  CHECK_THAT(problem, !ContainsSubstring("/nowhere"));
  fs::remove_all(folder);
}

}  // namespace
