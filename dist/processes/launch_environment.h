// Which rank of several this process is, as the program that started it says.
//
// Launchers tell it by environment variables, each by its own. Nothing else is asked: no PMI, PMIx
// or MPI library, which many machines lack or have in a version that does not fit.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace zl {

// Where a launcher has put this process: one rank of several, told by environment variables only.
struct LaunchedRank {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;  // local: among the ranks on this machine
  std::string address = "127.0.0.1";                       // of rank 0's machine
  int port = 0;     // rank 0 listens here, or on one of the next 19
  std::string run;  // tells this run's ranks from those of others; "" if the launcher gives none
  std::string launcher;  // "torchrun", "deepspeed", "srun", "mpirun", "zerolab launch", or the
                         // variables' names
};

struct LaunchEnvironment {
  std::optional<LaunchedRank> rank;  // none: this process stands alone
  std::string note;  // what to tell the user, such as an allocation without srun; "" if nothing
};

using Environment = std::function<const char*(const char* name)>;  // getenv

// The same on all ranks but for `rank` and the local numbers. A variable that is empty counts as
// not set. Throws InputError, naming the variables and values, if they contradict each other, are
// no numbers, or do not tell where rank 0 is.
LaunchEnvironment launch_environment(const Environment& get);

}  // namespace zl
