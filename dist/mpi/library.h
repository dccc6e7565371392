// The MPIs of this build, and the one that started this process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/mpi/api.h"

namespace zl {

const char* name(MpiKind kind);  // "Open MPI", "MPICH"

struct MpiInBuild {
  MpiKind kind;
  std::string version;  // of the header, "4.1.4"
};
// Opens nothing. Empty: MPI is not built in.
std::vector<MpiInBuild> mpis_in_build();

// What to do where MPI is not built in.
inline constexpr const char* kMpiCure =
    "install Open MPI (apt: openmpi-bin libopenmpi-dev) or MPICH (apt: mpich libmpich-dev), and "
    "build again; -D ZEROLAB_MPI=ON says what is missing";

// The names of this kind's mpirun, best first.
std::vector<std::string> mpiruns(MpiKind kind);

using Environment = std::function<const char*(const char* name)>;  // getenv

// The MPI whose launcher started this process, as its variables say; none: no MPI's did, or the
// variables do not say which. Slurm's srun serves both.
std::optional<MpiKind> mpi_of_launcher(const Environment& get);

// Opens the MPI for this process: the launcher's, else the first that is built in and can be
// opened. Throws InputError, with the cure, if it is not built in or cannot be opened.
const MpiApi& load_mpi(const Environment& get);
// This MPI. Throws likewise.
const MpiApi& load_mpi(MpiKind kind);

}  // namespace zl
