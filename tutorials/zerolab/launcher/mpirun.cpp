#include "tutorials/zerolab/launcher/mpirun.h"

#include <unistd.h>

#include "dist/mpi/library.h"
#include "tensor/error.h"

namespace zl::cli {
namespace {

// For /bin/sh: $1 is the launcher's process, $2 the number of its pipes, which follow, and then the
// program. A rank knows its number from Open MPI or MPICH.
constexpr const char* kRedirect = R"(rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
eval "pipe=/proc/$1/fd/\${$((rank + 3))}"
shift $(($2 + 2))
exec 2>"$pipe"
echo $$ >&2
[ "$rank" = 0 ] || exec >&2
exec "$@")";

}  // namespace

std::vector<std::string> under_mpirun(const std::vector<std::string>& program,
                                      const std::vector<int>& pipes) {
  const MpiInBuild mpi = require_mpi();
  require_input(access(mpi.mpirun.c_str(), X_OK) == 0, "this program was built with ", mpi.name(),
                ", whose mpirun is not on this machine (", mpi.mpirun,
                "). Cure: install it, or build again with an MPI that is here");
  const std::string ranks = std::to_string(pipes.size());
  std::vector<std::string> words{mpi.mpirun, "-n", ranks};
  if (mpi.open_mpi) words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  if (mpi.open_mpi && geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"/bin/sh", "-c", kRedirect, "sh", std::to_string(getpid()), ranks});
  for (const int pipe : pipes) words.push_back(std::to_string(pipe));
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

}  // namespace zl::cli
