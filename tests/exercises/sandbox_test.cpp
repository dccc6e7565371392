// What the process that runs a student's code cannot do: the tests' own exercise tries it.
#include "tutorials/exercises/grader/sandbox.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <map>

#include "tests/exercises/grading.h"
#include "tests/zerolab/process.h"
#include "tutorials/exercises/grader/build.h"
#include "tutorials/exercises/grader/child_process.h"

namespace zl::exercises {
namespace {

// What the tests' own exercise measured in a check, on a right solution.
std::map<std::string, double> measured(const std::string& check, const std::string& device) {
  const cli::ScratchFolder folder;
  const std::string file = cli::write_file(
      folder / "answer.cpp",
      probe_file("namespace zl::exercises { double answer(double x) { return 2 * x; } }\n"));
  const BuiltProgram built = build(probe(), file, toolchain(), folder.path(), {});
  REQUIRE(built.refused.empty());
  const ChildEnd end = run_child({built.path, check, "0", device}, {.input = "the key."});
  CAPTURE(end.output, end.signal);
  REQUIRE(end.code == 0);
  std::map<std::string, double> values;
  const uint64_t key = 0x2e79656b20656874;  // "the key."
  const Record record = decode_record(end.result, key);
  for (const auto& [name, numbers] : record.numbers) values[name] = numbers.at(0);
  return values;
}

}  // namespace

// With sanitizers it allows files, as for CUDA.
TEST_CASE("the sandbox forbids files, processes, connections and signals",
          "[exercises][unsanitized]") {
  const std::map<std::string, double> errors = measured("errors", "cpu");
  for (const char* call : {"open", "create", "openat2", "fork", "clone with some flags", "exec",
                           "socket", "kill the grader", "tgkill the grader", "ptrace", "unlink",
                           "setsid", "memfd", "io_uring"}) {
    CAPTURE(call);
    CHECK(errors.at(call) == EPERM);
  }
  CHECK(errors.at("clone3") == ENOSYS);
  CHECK(errors.at("tgkill itself") == 0);
  CHECK(errors.at("write") == 0);
  // In a container that has one user only, root stays root.
  const bool has_users = !cli::read_file("/proc/self/uid_map").ends_with(" 1\n");
  if (getuid() == 0 && has_users) CHECK(errors.at("user") == 65534);
}

TEST_CASE("the sandbox for CUDA allows files, and no processes or signals", "[exercises]") {
  const std::map<std::string, double> errors = measured("errors", "cuda");
  CHECK(errors.at("open") == 0);
  for (const char* call : {"fork", "clone with some flags", "exec", "socket", "kill the grader",
                           "tgkill the grader", "ptrace", "unlink", "setsid"}) {
    CAPTURE(call);
    CHECK(errors.at(call) == EPERM);
  }
  CHECK(errors.at("clone3") == ENOSYS);
}

TEST_CASE("threads start in the sandbox", "[exercises]") {
  CHECK(measured("threads", "cpu").at("sum") == 6);
  CHECK(measured("threads", "cuda").at("sum") == 6);
}

TEST_CASE("memory of vectors is counted, and that of aligned objects is not", "[exercises]") {
  const std::map<std::string, double> bytes = measured("heap", "cpu");
  CHECK(bytes.at("vector") >= 4000);
  CHECK(bytes.at("vector") < 4200);
  CHECK(bytes.at("aligned") == 0);
  CHECK(bytes.at("freed") == 0);
  CHECK(bytes.at("another thread's") < 100);  // std::thread itself allocates
}

}  // namespace zl::exercises
