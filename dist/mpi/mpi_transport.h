// MPI between ranks that are processes on CPUs.
#pragma once

#include "dist/processes/process_ranks.h"

namespace zl {

// `ordered`: sums in rank order; else MPI adds, equal but for rounding. Throws InputError if MPI is
// not built in. A program that has run on MPI calls finish_mpi() at its end (dist/mpi/library.h).
ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options, bool ordered);

}  // namespace zl
