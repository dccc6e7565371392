#include "tutorials/zerolab/launcher/mpirun.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tensor/error.h"

namespace zl::cli {
namespace {

// $1 is the folder. A rank knows its number from Open MPI or MPICH.
constexpr const char* kRedirect = R"(folder=$1; shift
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo $$ >"$folder/process$rank"
if [ "$rank" = 0 ]; then exec "$@" 2>"$folder/0"; fi
exec "$@" >"$folder/$rank" 2>&1)";

std::string on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/" + program; access(file.c_str(), X_OK) == 0)
      return file;
  return "";
}

// The first line that says whose it is: "mpirun (Open MPI) 4.1.4", "HYDRA build details:".
bool belongs_to(const std::string& mpirun, MpiKind kind) {
  FILE* const out = popen(("'" + mpirun + "' --version 2>&1").c_str(), "r");
  if (!out) return false;
  std::string said;
  for (std::array<char, 256> text; fgets(text.data(), int(text.size()), out);) said += text.data();
  pclose(out);
  const bool open_mpi = said.find("Open MPI") != said.npos || said.find("OpenRTE") != said.npos;
  return open_mpi == (kind == MpiKind::open_mpi);
}

}  // namespace

std::string mpirun_of(MpiKind kind) {
  for (const std::string& name : mpiruns(kind))
    if (const std::string path = on_path(name); !path.empty())
      if (name != "mpirun" || belongs_to(path, kind)) return path;
  return "";
}

std::vector<std::string> mpirun_command(int ranks) {
  const std::vector<MpiInBuild> built = mpis_in_build();
  require_input(!built.empty(), "this program was built without MPI. Cure: ", kMpiCure);
  std::string missing;
  for (const MpiInBuild& mpi : built) {
    missing += (missing.empty() ? "" : " or ") + std::string(name(mpi.kind));
    const std::string mpirun = mpirun_of(mpi.kind);
    if (mpirun.empty()) continue;
    std::vector<std::string> words{mpirun, "-n", std::to_string(ranks)};
    if (mpi.kind == MpiKind::open_mpi) {
      words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
      if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
    }
    return words;
  }
  throw InputError(str("this program was built with ", missing,
                       ", and no such mpirun is on PATH. Cure: add its folder to PATH, or ",
                       kMpiCure));
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
