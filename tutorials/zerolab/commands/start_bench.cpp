// zerolab bench, for the program that leaves it to zerolab-bench: so zl compiles that only where a
// command needs it.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tutorials/zerolab/cli/flags.h"

namespace zl::cli {

void add_bench(CLI::App& app, Invocation& invocation) {
  Flags(app, invocation, "bench", kBenchDescription, nullptr);
}

std::string become_bench(char** arguments) {
  std::error_code unknown;
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe", unknown).replace_filename("zerolab-bench");
  execv(program.c_str(), arguments);
  return str("'bench' needs the program ", program,
             ", which cannot be started: ", std::strerror(errno), "; build it with './zl build'");
}

}  // namespace zl::cli
