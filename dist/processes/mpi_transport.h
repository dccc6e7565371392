// MPI between ranks that are processes on CPUs.
#pragma once

#include "dist/processes/process_ranks.h"

namespace zl {

// On the MPI that load_mpi() chooses. `ordered`: sums in rank order; else MPI adds, equal but for
// rounding. Throws InputError if MPI is not built in, or cannot be opened. A program that has run
// on MPI calls finish_mpi() at its end (dist/mpi/session.h).
ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options, bool ordered);

}  // namespace zl
