// Ranks that are processes on CPUs, with MPI moving their data.
//
// MPI moves bytes, in messages of at most 1 GiB, and adds nothing: reductions are those of
// dist/ordered/, in rank order, with the bits of ranks that are threads.
//
// Ranks first check that they all make the same collective, as on NCCL
// (dist/processes/control_client.h). A call then moves its data, and returns when that is done, as
// among threads: MPI moves data only while a rank is inside it, so a program on MPI hides little
// communication behind its computation in any case. No function of MPI that is used here blocks:
// between polls a rank sees whether another one has failed, or its time is over. There is no send
// and receive. Each group of ranks has its own tag.
//
// A send is done when it is being received (MPI_Issend), so that none is left for MPI to move while
// this rank is not inside MPI. MPI keeps the order of messages between two ranks, and a rank has
// one call at a time under way.
//
// All of MPI is called on the rank's thread, the main thread of its process. Only its start and its
// end wait for the other ranks. A rank that waits there cannot be told that another one has failed:
// it exits with code 4 a second after it knows, and says where it was.
//
// After a failure a rank never calls MPI again. Its unfinished call keeps its memory until the
// process ends: other ranks may still read what it sends, and MPI cannot withdraw a send. It does
// not call MPI_Abort either, which would kill the ranks before they have said why.
//
// A program is linked with one MPI, or none.
#pragma once

#include <optional>
#include <string>

#include "dist/processes/process_ranks.h"
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
    "build again; cmake --preset default -DZEROLAB_MPI=ON says what is missing";

// Throws InputError, with a remedy, if MPI is not built in.
inline MpiInBuild require_mpi() {
  const auto mpi = mpi_in_build();
  require_input(mpi.has_value(), "this program was built without MPI. Cure: ", kMpiCure);
  return *mpi;
}

// Throws InputError if MPI is not built in, and when ranks join if it disagrees with the launcher
// about rank or size. Its communicator is there when all ranks have started MPI, and its finish()
// returns when all ranks have come there; it waits for them without a deadline. A program that has
// run on MPI calls finish_mpi() at its end.
ProcessTransport mpi_transport(const LaunchedRank& place);

// For a program whose runs have all succeeded, at its end: without it mpirun reports an error. A
// program that failed exits without it, since MPI would wait here for ranks that are gone. Does
// nothing if MPI was not started. Throws CommunicationError; if MPI does not end within a minute,
// the process exits with code 4.
void finish_mpi();

}  // namespace zl
