// The ranks of `zerolab launch`: starts them, forwards their output and the user's signals, and
// ends them together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tutorials/terminal/terminal.h"

namespace zl::cli {

struct LaunchPlan {
  std::vector<std::string> command;
  int ranks = 1;
  std::chrono::milliseconds grace{5000};  // after the first failure, before SIGTERM to the others
  int port = 0;
  std::string run;         // a name that tells this run from others
  bool share_gpu = false;  // several ranks on NCCL may use one GPU
};

// Returns the exit code when all ranks have ended. Each leads its own process group, and the system
// kills it if the launcher dies. Throws InputError if they cannot be started; then none is left.
int run_launched_ranks(const LaunchPlan& plan, Terminal terminal);

// This process becomes the mpirun of the MPI that is built in, with the plan's ranks on this
// machine, which may be more than its cores. Of the plan it takes command, ranks and, on Open MPI,
// grace. Throws InputError, which says how to fix it, if MPI is not built in, or its mpirun is not
// there.
[[noreturn]] void become_mpirun(const LaunchPlan& plan);

}  // namespace zl::cli
