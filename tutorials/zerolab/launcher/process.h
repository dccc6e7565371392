// A process that `zerolab launch` starts: a rank, which leads its own process group, and which the
// system kills if the launcher dies. Or the mpirun that `launch` becomes.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tensor/error.h"

namespace zl::cli {

// There is no such program.
class ProgramNotFound : public InputError {
 public:
  using InputError::InputError;
};

// For this process only. Throws InputError.
struct Pipe {
  Pipe();
  int read, write;
};

struct ProcessPlan {
  std::vector<std::string> command;  // the program, a path or a name on PATH, and its arguments
  std::map<std::string, std::string> environment;  // added to the launcher's; empty: unset
  std::array<int, 3> streams;                      // what become its stdin, stdout and stderr
};

// Returns the process when the program runs, with no signal blocked or caught. Throws
// ProgramNotFound, or InputError if it cannot be started for another reason.
pid_t start_process(const ProcessPlan& plan);

// Whether the process has ended, and how, as waitpid() says it. If so, it is waited for, and the
// rest of its group is killed.
bool ended(pid_t id, int& status);

// This process becomes the mpirun of the MPI that is built in, with so many ranks of `program` on
// this machine, which may be more than its cores. Throws InputError, which says how to fix it, if
// MPI is not built in, or its mpirun is not there.
[[noreturn]] void become_mpirun(int ranks, const std::vector<std::string>& program);

}  // namespace zl::cli
