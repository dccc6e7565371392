// Which rank this process is, as the launcher that started it says.
//
// Launchers say it in environment variables, each in its own: the rank, the number of ranks, and
// both again among the ranks on this machine. No PMI, PMIx or MPI library is asked, which many
// machines lack or have in another version.
//
// If launchers are nested, as torchrun under srun, the innermost one counts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace zl {

// The launcher of ranks that a script or a user starts with RANK and WORLD_SIZE.
inline constexpr const char* kNoLauncher = "RANK and WORLD_SIZE";

inline constexpr int kPorts = 20;  // rank 0 takes the first free one of this many

struct LaunchedRank {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;  // local: among the ranks on this machine
  std::string address = "127.0.0.1";                       // of rank 0's machine
  int port = 0;                                            // the first of rank 0's ports
  std::string run;       // distinguishes this run from others; "" if the launcher gives no name
  std::string launcher;  // "torchrun", "deepspeed", "srun", "mpirun", "zerolab launch", kNoLauncher
  bool shares_gpu = false;  // ZEROLAB_SHARE_GPU=1: several ranks on NCCL may use one GPU
};

struct LaunchEnvironment {
  std::optional<LaunchedRank> rank;  // none: no launcher started this process
  std::string note;  // for the user, such as an allocation without srun; "" if there is none
};

using Environment = std::function<const char*(const char* name)>;  // getenv

// Equal on all ranks except for `rank` and the local numbers. An empty variable counts as not set.
// Throws InputError, naming the variables and values, if they contradict each other, are not
// numbers, or do not say where rank 0 is.
LaunchEnvironment launch_environment(const Environment& get);

// What a rank that shares a GPU needs in its environment before it loads NCCL, which refuses a GPU
// that two ranks of one host use: a host name for each rank, and the loopback network between
// them. NCCL_SOCKET_IFNAME and NCCL_IB_DISABLE are left out where they are set already.
std::map<std::string, std::string> shared_gpu_variables(int rank, const Environment& get);

}  // namespace zl
