#include "tutorials/zerolab/launcher/mpirun.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "dist/mpi/library.h"
#include "tensor/error.h"

namespace zl::cli {
namespace {

// $1 is the folder. A rank knows its number from Open MPI or MPICH.
constexpr const char* kRedirect = R"(folder=$1; shift
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ >"$folder/process$rank"
if [ "$rank" = 0 ]; then exec "$@" 2>"$folder/0"; fi
exec "$@" >"$folder/$rank" 2>&1)";

}  // namespace

std::vector<std::string> mpirun_command(int ranks) {
  const MpiInBuild mpi = require_mpi();
  require_input(access(mpi.mpirun.c_str(), X_OK) == 0, "this program was built with ", mpi.name(),
                ", whose mpirun is not on this machine (", mpi.mpirun,
                "). Cure: install it, or build again with an MPI that is here");
  std::vector<std::string> words{mpi.mpirun, "-n", std::to_string(ranks)};
  if (mpi.open_mpi) {
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
    if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  }
  return words;
}

RankPipes::RankPipes(int ranks) {
  std::error_code none;
  const std::string place = std::filesystem::temp_directory_path(none).string();
  folder_ = (place.empty() ? "/tmp" : place) + "/zerolab-launch-XXXXXX";
  require_input(mkdtemp(folder_.data()), "no folder for the ranks' output can be made in ", place,
                ": ", std::strerror(errno), "; set TMPDIR to another");
  for (int r = 0; r < ranks; ++r) {
    const std::string file = str(folder_, "/", r);
    const int end = mkfifo(file.c_str(), 0600) == 0
                        ? open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                        : -1;
    require_input(end >= 0, "no pipe can be made in ", folder_, ": ", std::strerror(errno));
    read_ends_.push_back(end);
  }
}

RankPipes::~RankPipes() {
  std::error_code none;
  std::filesystem::remove_all(folder_, none);
}

pid_t RankPipes::process(int rank) const {
  pid_t id = 0;
  std::ifstream(str(folder_, "/process", rank)) >> id;
  return id;
}

std::vector<std::string> RankPipes::redirected(const std::vector<std::string>& program) const {
  std::vector<std::string> words{"/bin/sh", "-c", kRedirect, "sh", folder_};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

}  // namespace zl::cli
