// MPI between ranks that are processes on CPUs.
#pragma once

#include "dist/mpi/api.h"
#include "dist/processes/process_ranks.h"

namespace zl {

struct MpiOptions {
  const MpiApi* api = nullptr;  // null: open_mpi(), which chooses
  bool ordered = true;          // sums in rank order; false: MPI adds, equal but for rounding
  std::string machine = {};     // names the rank's machine, for tests; "": the real one
};

// Throws InputError if MPI is not built in, or cannot be opened. A program that has run on MPI
// calls finish_mpi() at its end (dist/mpi/session.h).
ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               const MpiOptions& mpi);

}  // namespace zl
