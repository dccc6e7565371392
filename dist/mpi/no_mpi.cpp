// A build without MPI says so.
#include "dist/mpi/mpi_transport.h"

namespace zl {

std::optional<MpiInBuild> mpi_in_build() { return std::nullopt; }

void finish_mpi() {}

ProcessTransport mpi_transport(const LaunchedRank&) {
  (void)require_mpi();
  return {};
}

}  // namespace zl
