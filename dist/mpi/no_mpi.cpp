// A build without MPI says so.
#include "dist/mpi/library.h"
#include "dist/mpi/mpi_communicator.h"

namespace zl {

std::optional<MpiInBuild> mpi_in_build() { return std::nullopt; }

void finish_mpi() {}

const char* inside_mpi() { return nullptr; }

std::unique_ptr<Communicator> mpi_communicator(const MpiJoin&, FingerprintCheck&, EventStream&) {
  (void)require_mpi();
  return nullptr;
}

}  // namespace zl
