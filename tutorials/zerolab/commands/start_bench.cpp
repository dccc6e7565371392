// zerolab bench, for the program that leaves it to zerolab-bench: so zl compiles that only where a
// command needs it.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tutorials/zerolab/cli/flags.h"

namespace zl::cli {

void add_bench(CLI::App& app, Invocation& invocation) {
  Flags(app, invocation, "bench", kBenchDescription, []() -> int {
    throw UsageError("'bench' must be the first word: zerolab bench COMMAND …");
  });
}

std::string become_bench(char** arguments) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown)
    return str(
        "'bench' needs the program zerolab-bench beside this one, but /proc/self/exe, which "
        "says where that is, cannot be read: ",
        unknown.message());
  const std::string program = std::filesystem::path(self).replace_filename("zerolab-bench");
  execv(program.c_str(), arguments);
  return str("'bench' needs the program ", program,
             ", which cannot be started: ", std::strerror(errno),
             "; in the source tree './zl build' builds it, elsewhere install both programs");
}

}  // namespace zl::cli
