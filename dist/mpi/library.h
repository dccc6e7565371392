// The MPI that this program is linked with.
#pragma once

#include <optional>
#include <string>

#include "tensor/error.h"

namespace zl {

struct MpiInBuild {
  bool open_mpi;        // else MPICH
  std::string version;  // of the header, "4.1.4"
  std::string mpirun;   // its path where the build found it, which may be another machine
  const char* name() const { return open_mpi ? "Open MPI" : "MPICH"; }
};
std::optional<MpiInBuild> mpi_in_build();  // none: MPI is not built in

// What to do where MPI is not built in.
inline constexpr const char* kMpiCure =
    "install Open MPI (apt: openmpi-bin libopenmpi-dev) or MPICH (apt: mpich libmpich-dev), and "
    "build again; -D ZEROLAB_MPI=ON says what is missing";

// Throws InputError, with a remedy, if MPI is not built in.
inline MpiInBuild require_mpi() {
  const auto mpi = mpi_in_build();
  require_input(mpi.has_value(), "this program was built without MPI. Cure: ", kMpiCure);
  return *mpi;
}

// For a program whose runs have all succeeded, at its end: without it mpirun reports an error. A
// program that failed exits without it, since MPI would wait here for ranks that are gone. Does
// nothing if MPI was not started. Throws CommunicationError, also if it takes more than a minute.
void finish_mpi();

}  // namespace zl
