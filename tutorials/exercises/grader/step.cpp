#include "tutorials/exercises/grader/step.h"

#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "tensor/error.h"
#include "tutorials/exercises/grader/temporary_folder.h"

extern char** environ;

namespace zl::exercises {

void step_through(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
                  const Check& check, const CheckOptions& options) {
  const TemporaryFolder folder;
  const BuiltProgram built = build(exercise, file, toolchain, folder.path(), {});
  require_input(built.refused.empty(), file, ": ", built.refused);
  std::string program = built.path, name = check.name, seed = std::to_string(options.seed);
  std::string device = options.device == DeviceKind::cuda ? "cuda" : "cpu";
  std::string event = std::to_string(options.step_from);
  char* const words[] = {program.data(), name.data(),  seed.data(),
                         device.data(),  event.data(), nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, program.c_str(), nullptr, nullptr, words, environ);
  require_input(error == 0, "cannot start the check: ", std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  require_input(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the program of the check ended ",
                WIFSIGNALED(status) ? str("with signal ", WTERMSIG(status))
                                    : str("with exit code ", WEXITSTATUS(status)));
}

}  // namespace zl::exercises
