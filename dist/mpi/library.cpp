#include "dist/mpi/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "tensor/platform/shared_library.h"

#ifndef ZEROLAB_MPIS  // of CMake: "openmpi 4.1.4 mpich 4.0.2", and where the build has the plugins
#define ZEROLAB_MPIS ""
#define ZEROLAB_MPI_FOLDER ""
#define ZEROLAB_MPI_INSTALLED ""
#endif

namespace zl {
namespace {

const char* file_name(MpiKind kind) {
  return kind == MpiKind::open_mpi ? "libzerolab_openmpi.so" : "libzerolab_mpich.so";
}

// The folder with the plugins. They are installed with the library, which may be moved; a program
// that contains the library has them in its neighbour folder.
std::string plugin_folder(MpiKind kind) {
  namespace fs = std::filesystem;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&mpis_in_build), &self) != 0 && self.dli_fname) {
    std::error_code none;
    const fs::path here = fs::canonical(self.dli_fname, none).parent_path();
    for (const fs::path& folder : {here, here / ZEROLAB_MPI_INSTALLED, here / ".." / ".."})
      if (fs::exists(folder / file_name(kind), none)) return folder.string();
  }
  return ZEROLAB_MPI_FOLDER;
}

const MpiApi& opened(MpiKind kind) {
  static std::map<MpiKind, const MpiApi*> all;  // used by one thread at a time
  const MpiApi*& api = all[kind];
  if (api) return *api;
  // MPI's own plugins look for its functions among all of the program's.
  const SharedLibrary plugin(name(kind), file_name(kind), plugin_folder(kind),
                             SharedLibrary::Visible::to_all);
  const MpiApi* (*const entry)() = plugin.function(kMpiEntry);
  const MpiApi* const found = entry();
  if (found->abi_version != kAbiVersion)
    throw LibraryError(str(file_name(kind), " is of another version of zerolab"),
                       "build and install all of zerolab again");
  return *(api = found);
}

std::vector<MpiInBuild> require_mpis() {
  std::vector<MpiInBuild> built = mpis_in_build();
  require_input(!built.empty(), "this program was built without MPI. Cure: ", kMpiCure);
  return built;
}

bool has(const Environment& get, const char* name) {
  const char* const value = get(name);
  return value && *value;
}

}  // namespace

const char* name(MpiKind kind) { return kind == MpiKind::open_mpi ? "Open MPI" : "MPICH"; }

std::vector<MpiInBuild> mpis_in_build() {
  std::vector<MpiInBuild> all;
  std::istringstream words(ZEROLAB_MPIS);
  for (std::string kind, version; words >> kind >> version;)
    all.push_back({kind == "openmpi" ? MpiKind::open_mpi : MpiKind::mpich, version});
  return all;
}

std::vector<std::string> mpiruns(MpiKind kind) {
  if (kind == MpiKind::open_mpi) return {"mpirun.openmpi", "mpirun"};
  return {"mpirun.mpich", "mpiexec.hydra", "mpirun"};
}

// srun sets PMI_RANK with --mpi=pmi2, which is MPICH's, and PMIX_RANK with --mpi=pmix, which is
// first of all Open MPI's.
std::optional<MpiKind> mpi_of_launcher(const Environment& get) {
  if (has(get, "OMPI_COMM_WORLD_RANK")) return MpiKind::open_mpi;
  if (has(get, "PMI_RANK")) return MpiKind::mpich;
  if (has(get, "PMIX_RANK")) return MpiKind::open_mpi;
  return std::nullopt;
}

const MpiApi& load_mpi(MpiKind kind) {
  const std::vector<MpiInBuild> built = require_mpis();
  for (const MpiInBuild& one : built)
    if (one.kind == kind) return opened(kind);
  const MpiKind other = built.front().kind;
  throw InputError(str(
      "these ranks were started by ", name(kind), "'s launcher, but this program was built with ",
      name(other), ", whose ranks would not find each other. Cure: start them with ",
      mpiruns(other).front(), " or srun ", other == MpiKind::open_mpi ? "--mpi=pmix" : "--mpi=pmi2",
      ", or build again with ", name(kind), "'s mpicc"));
}

const MpiApi& load_mpi(const Environment& get) {
  if (const auto kind = mpi_of_launcher(get)) return load_mpi(*kind);
  const std::vector<MpiInBuild> built = require_mpis();
  std::string problems;
  for (const MpiInBuild& one : built) {
    try {
      return opened(one.kind);
    } catch (const LibraryError& error) {
      problems += str(problems.empty() ? "" : "; ", error.what());
    }
  }
  throw InputError(problems);
}

}  // namespace zl
