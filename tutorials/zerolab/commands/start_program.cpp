// Commands that are executables beside zerolab, so that zl compiles them only where they are
// needed.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tutorials/zerolab/cli/flags.h"

namespace zl::cli {
namespace {

struct Program {
  const char *command, *description;
  const char* program = command;                  // without "zerolab-"
  void (*add)(CLI::App&, Invocation&) = nullptr;  // of the command that this executable has
  std::string name() const { return str("zerolab-", program); }
};

constinit Program programs[] = {
    {"bench", "speed of the machine, collectives, kernels and steps"},
    {"exercise", "write the stages yourself, and grade them"},
    {"check", "your own run of PyTorch or DeepSpeed beside the prediction"},
    {"golden", "a run to repeat in PyTorch, with all its numbers", "check"},
};

}  // namespace

bool have_program(const std::string& name, void (*add)(CLI::App&, Invocation&)) {
  std::ranges::find(programs, name, &Program::command)->add = add;
  return true;
}

void add_programs(CLI::App& app, Invocation& invocation) {
  for (const Program& program : programs) {
    if (program.add == nullptr) {
      Flags(app, invocation, program.command, program.description,
            []() -> int { throw UsageError("the command must be the first word"); });
      continue;
    }
    if (program.program != std::string(program.command)) {  // one command, without subcommands
      program.add(app, invocation);
      continue;
    }
    program.add(add_commands(app, program.command, program.description), invocation);
  }
}

std::string become_program(const std::string& name, char** arguments) {
  const auto found = std::ranges::find(programs, name, &Program::command);
  if (found == std::end(programs) || found->add != nullptr) return "";
  const std::string needs = str("'", name, "' needs the program ");
  std::error_code unknown;  // then exec fails
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string program = self.replace_filename(found->name());
  execv(program.c_str(), arguments);
  return str(needs, program, ", which cannot be started: ", std::strerror(errno),
             "; in the source tree './zl build' builds it, elsewhere install both programs");
}

}  // namespace zl::cli
