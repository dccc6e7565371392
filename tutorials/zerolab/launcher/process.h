// A process that `zerolab launch` starts: a rank, or the mpirun that starts the ranks. It leads its
// own process group, and the system kills it if the launcher dies.
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

// mpirun and its arguments for ranks on this machine, which may be more than its cores. mpirun
// mixes what its ranks write. So each rank first redirects its output, except rank 0's stdout, to
// its own of these pipes of this process, and writes its process's number as the first line. Then
// it becomes `program`. Throws InputError, which says how to fix it, if MPI is not built in, or its
// mpirun is not there.
std::vector<std::string> under_mpirun(const std::vector<std::string>& program,
                                      const std::vector<int>& pipes);

}  // namespace zl::cli
