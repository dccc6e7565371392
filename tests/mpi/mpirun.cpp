#include "tests/mpi/mpirun.h"

#include "tests/paths.h"

namespace zl::test {

cli::Finished mpi_rank(const Mpi& mpi, int ranks, const std::string& which,
                       const std::string& before) {
  return cli::shell(before + mpi.ranks(ranks) + " " + ZEROLAB_MPI_RANK + " " + which, 120);
}

}  // namespace zl::test
